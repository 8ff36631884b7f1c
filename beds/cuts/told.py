"""What a run of cuts has to tell: what was cut, what did not come, what did not hold, and how to repeat that."""

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from beds.cuts.plan import Cut
from beds.cuts.steps import VICTIMS


@dataclass
class Told:
    """All that was done. Steps are as they are printed."""

    seed: int
    began: float = field(default_factory=time.monotonic)
    steps: dict[str, list[str]] = field(default_factory=dict)
    done: list[Cut] = field(default_factory=list)
    missed: list[Cut] = field(default_factory=list)
    failed: list[tuple[Cut | str, str]] = field(default_factory=list)
    slowest: float = 0.0
    replayed: int = 0
    """How often what was parked had to be handled again before all tells were rows."""
    rows: int = 0
    """Tells that the broker had confirmed and of which a row was seen: all, unless something failed."""

    def document(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "seed": self.seed,
            "steps": self.steps,
            "cuts": [{**asdict(one), "step": str(one.step)} for one in self.done],
            "not-come": [str(one) for one in self.missed],
            "failed": [{"cut": str(one), "why": why} for one, why in self.failed],
            "seconds": round(time.monotonic() - self.began, 1),
            "slowest": round(self.slowest, 1),
            "tells-written": self.rows,
            "replays": self.replayed,
        }

    def summary(self) -> Iterator[str]:
        """The lines that end a run."""
        for operation, steps in self.steps.items():
            were = {str(one.step) for one in self.done if one.operation == operation}
            yield f"{operation}: {len(steps)} steps, {len(were & set(steps))} of them cut"
        by = ", ".join(f"{victim} {sum(one.victim == victim for one in self.done)}" for victim in VICTIMS)
        yield f"{len(self.done)} cuts ({by}), {len(self.missed)} steps did not come; the slowest recovery took {self.slowest:.1f} s"
        yield f"{self.rows} tells were confirmed by the broker and each is a row; what was parked was handled again {self.replayed} times"
        for cut, why in self.failed:
            yield f"FALSE: {cut}: {why}"
            if isinstance(cut, Cut):
                yield f"  again: python -m beds.cuts --seed {self.seed} {cut.again}"
        yield f"seed {self.seed}, {time.monotonic() - self.began:.0f} s: {f'{len(self.failed)} failed' if self.failed else 'all held'}"


def say(words: str) -> None:
    """A line for people."""
    print(f"{time.strftime('%H:%M:%S')}  {words}", file=sys.stderr, flush=True)
