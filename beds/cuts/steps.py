"""Steps: what passes between the processes of a mesh, one after the other, each with a name by which it is known again in the next run.

A gate that understands its protocol asks the ``Watch`` before it forwards a step. The watch records it; at the step that is to be cut it
has somebody killed first, and the step is not forwarded if that was one of its two ends.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

#: Whoever can be killed.
PROVISIONER, CONSUMER, BROKER, SERVER = "provisioner", "consumer", "broker", "server"
VICTIMS = (PROVISIONER, CONSUMER, BROKER, SERVER)

#: What is of one run alone, or a secret, and names no step: quoted text, names, numbers.
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_NUMBER = re.compile(r"\d+")
#: Characters of a statement that name a step.
SHOWN = 90


@dataclass(frozen=True, slots=True)
class Step:
    """The ``nth`` (from 1) of its name on one link (``provisioner-server``) since the operation began."""

    link: str
    name: str
    nth: int

    def __str__(self) -> str:
        return f"{self.link}: {self.name} #{self.nth}"


def named(text: str) -> str:
    """A statement without what is of one run alone: the same for the same step of every run. No secret is in it."""
    plain = _NUMBER.sub("0", _QUOTED.sub(lambda found: found[0][0] * 2, " ".join(text.split())))
    return plain if len(plain) <= SHOWN else plain[: SHOWN - 3] + "..."


class Watch:
    """Sees all steps of one mesh, and cuts at one of them. Between two operations it sees none."""

    def __init__(self) -> None:
        self.seen: list[Step] = []
        self.passed = 0
        """How many have passed, seen or not."""
        self._counts: Counter[tuple[str, str]] = Counter()
        self._watching = False
        self._at: Step | None = None
        self._kill: Callable[[], Awaitable[None]] | None = None
        self._victim = ""

    def begin(self, at: Step | None = None, victim: str = "", kill: Callable[[], Awaitable[None]] | None = None) -> None:
        """An operation begins. ``kill`` kills ``victim``; it is called once, when ``at`` is about to pass."""
        self.seen, self._counts = [], Counter()
        self._watching, self._at, self._victim, self._kill = True, at, victim, kill

    def end(self) -> list[Step]:
        """It is over; its steps in order."""
        self._watching = False
        return self.seen

    async def passes(self, ends: Collection[str], name: str) -> bool:
        """A step is about to pass between these two; whether it may."""
        self.passed += 1
        if not self._watching:
            return True
        link = "-".join(ends)
        self._counts[link, name] += 1
        step = Step(link, name, self._counts[link, name])
        self.seen.append(step)
        if step != self._at or self._kill is None:
            return True
        kill, self._kill = self._kill, None
        await kill()
        return self._victim not in ends
