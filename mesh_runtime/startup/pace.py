"""How long to wait before a stage is tried again. The only place that knows tenacity.

Each stage has its own deadline for one attempt and its own pace between attempts; every gap is jittered so that runtimes that were started
together do not knock together, and none is smaller than the one before it until the cap is near. A blocked cause is tried at a slow pace,
at most six times a minute, whatever the stage.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import tenacity
from tenacity.wait import wait_base

from mesh_runtime.startup.cause import Cause, Kind, Stage

Uniform = Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class Pace:
    """``deadline`` bounds one attempt at the stage; gaps grow from ``first`` to ``cap``. All in seconds."""

    deadline: float
    first: float
    cap: float


#: Deadlines and gaps of each stage. ``reach`` spends its deadline over all addresses of a name. ``resolve`` and ``reach`` stay well below
#: one second apart: whoever waits for a broker is to be there within a second of it, handshakes and stages included.
PACES: Mapping[Stage, Pace] = {
    Stage.SETTINGS: Pace(deadline=5.0, first=0.2, cap=1.0),
    Stage.RESOLVE: Pace(deadline=5.0, first=0.2, cap=0.8),
    Stage.REACH: Pace(deadline=10.0, first=0.1, cap=0.8),
    Stage.TRUST: Pace(deadline=2.0, first=0.2, cap=15.0),
    Stage.LOGIN: Pace(deadline=5.0, first=0.2, cap=15.0),
    Stage.TOPOLOGY: Pace(deadline=10.0, first=0.2, cap=5.0),
    Stage.GRANTS: Pace(deadline=30.0, first=0.5, cap=15.0),
    Stage.PREPARE: Pace(deadline=300.0, first=0.5, cap=15.0),
    Stage.PROOF: Pace(deadline=5.0, first=0.2, cap=5.0),
    Stage.READY: Pace(deadline=5.0, first=0.2, cap=1.0),
}

#: The gaps of every blocked stage, in seconds: six attempts a minute at most.
BLOCKED_GAP = (10.5, 15.0)
#: How much the ceiling of the gaps grows, and from which part of it on a gap is drawn: not below the ceiling before it.
GROWTH, LEAST_PART = 1.6, 0.63


class _JitteredGrowth(wait_base):
    """Exponential growth between two bounds, each gap drawn from the upper part of its ceiling, so that gaps grow and differ."""

    def __init__(self, first: float, cap: float, uniform: Uniform) -> None:
        self._growth = tenacity.wait_exponential(multiplier=first, max=cap, exp_base=GROWTH)
        self._uniform = uniform

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        ceiling = float(self._growth(retry_state))
        return self._uniform(LEAST_PART * ceiling, ceiling)


class climbing_waits:  # noqa: N801 - reads as a function: it hands out one gap after the other
    """Hands out the gap after each failed attempt; a fault at another stage, or of another kind, begins anew.

    ``uniform`` is the source of jitter, injected by tests.
    """

    def __init__(self, paces: Mapping[Stage, Pace] = PACES, uniform: Uniform = random.uniform) -> None:
        self._paces = paces
        self._uniform = uniform
        self._at: tuple[Stage, Kind] | None = None
        self._gaps: Iterator[float] = iter(())

    def after(self, stage: Stage, cause: Cause) -> float:
        """Seconds to wait after this fault at this stage."""
        if self._at != (stage, cause.kind):
            self._at = (stage, cause.kind)
            self._gaps = self._growing(stage)
        gap = next(self._gaps)
        if cause.kind is Kind.BLOCKED:
            gap = self._uniform(*BLOCKED_GAP)
        return gap

    def reset(self) -> None:
        """Begin anew: a session stood."""
        self._at = None

    def _growing(self, stage: Stage) -> Iterator[float]:
        pace = self._paces[stage]
        growth = _JitteredGrowth(pace.first, pace.cap, self._uniform)
        state = tenacity.RetryCallState(tenacity.AsyncRetrying(), None, (), {})
        while True:
            yield growth(state)
            state.attempt_number += 1
