"""The one state object of a runtime: what logs, health, metrics and ``mesh status`` show.

It stands from before the first stage until the process ends. Everything that is shown of a runtime's readiness is read from here and
nowhere else, so that no two places can disagree.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from mesh_runtime.startup.cause import Cause, Kind, Stage

Listener = Callable[["RuntimeState"], None]

#: Attempts whose gaps are shown, the last ones.
ATTEMPTS_SHOWN = 64

_ORDER = {stage: at for at, stage in enumerate(Stage)}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class RuntimeState:
    """State, stage, cause, since, attempts, on whom; ``ready``; ``degraded`` with reasons; ``draining``.

    ``state`` is one of ``starting``, ``waiting``, ``blocked``, ``ready``, ``draining``. ``since`` is the wall clock time at which the
    present stage and cause code began, for people; no decision rests on it.
    """

    def __init__(self, identity: str, version: str, pid: int, clock: Callable[[], str] = _now) -> None:
        self.identity = identity
        self.version = version
        self.pid = pid
        self._clock = clock
        self.started = clock()
        self.stage = Stage.SETTINGS
        self.cause: Cause | None = None
        self.since = self.started
        self.attempts = 0
        self.ready = False
        self.draining = False
        self.sessions = 0
        self.last_loss = ""
        self._degraded: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self._last_attempts: list[float] = []
        self._listeners: list[Listener] = []

    @property
    def state(self) -> str:
        """The one word: ``draining`` before ``ready`` before the cause's kind before ``starting``."""
        if self.draining:
            return "draining"
        if self.ready:
            return "ready"
        return str(self.cause.kind) if self.cause else "starting"

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` after each change. It must not raise and must not block."""
        self._listeners.append(listener)

    def climbing(self, stage: Stage) -> None:
        """A stage is being tried. A cause of an earlier stage is over then; one of this or a later stage stands until its own is passed."""
        if self.stage is stage or (self.cause is not None and _ORDER[stage] < _ORDER[self.stage]):
            return
        self.stage, self.cause, self.attempts = stage, None, 0
        self.since = self._clock()
        self._tell()

    def passed(self, stage: Stage) -> None:
        """A stage was done: if the cause that is shown was this stage's, it is over."""
        if self.cause is not None and self.stage is stage:
            self.cause = None
            self.attempts = 0
            self.since = self._clock()
            self._tell()

    def fault(self, stage: Stage, cause: Cause) -> None:
        """An attempt failed at ``stage``. Counts the attempt; ``since`` stands as long as stage and code stand."""
        same = self.cause is not None and (self.stage, self.cause.code) == (stage, cause.code)
        if not same:
            self.since = self._clock()
            self.attempts = 0
            self._last_attempts.clear()
        self.ready = False
        self.stage = stage
        self.cause = cause
        self.attempts += 1
        self._last_attempts = [*self._last_attempts[-(ATTEMPTS_SHOWN - 1) :], time.monotonic()]
        self._tell()

    def became_ready(self) -> None:
        """Routable: what it answers is bound."""
        self.stage, self.cause, self.ready = Stage.READY, None, True
        self.attempts = 0
        self.sessions += 1
        self.since = self._clock()
        self._tell()

    def lost(self, why: str) -> None:
        """The session is over; the stages are climbed again."""
        self.ready = False
        self.last_loss = why
        self.stage, self.cause, self.attempts = Stage.RESOLVE, None, 0
        self.since = self._clock()
        self._tell()

    def degrade(self, name: str, reason: str | None) -> None:
        """Set or clear (``None``) one reason for which the runtime works less well than it should."""
        if self._degraded.get(name) == reason:
            return
        if reason is None:
            self._degraded.pop(name, None)
        else:
            self._degraded[name] = reason
        self._tell()

    def drain(self) -> None:
        """Stopping: nothing new is taken."""
        self.ready, self.draining = False, True
        self.since = self._clock()
        self._tell()

    def count(self, name: str, by: int = 1) -> None:
        """Count an event worth seeing (late replies, parked tells, ...)."""
        self.counts[name] = self.counts.get(name, 0) + by

    @property
    def is_blocked(self) -> bool:
        """Whether somebody must act."""
        return self.cause is not None and self.cause.kind is Kind.BLOCKED

    def snapshot(self) -> dict[str, Any]:
        """All of it as JSON values; holds no secret, since causes name addresses, names and times only."""
        cause = self.cause
        return {
            "identity": self.identity,
            "version": self.version,
            "pid": self.pid,
            "started": self.started,
            "state": self.state,
            "stage": str(self.stage),
            "cause": {"kind": str(cause.kind), "code": cause.code, "text": cause.text} if cause else None,
            "on": cause.on if cause else "",
            "since": self.since,
            "attempts": self.attempts,
            "gaps": [round(b - a, 3) for a, b in zip(self._last_attempts, self._last_attempts[1:], strict=False)],
            "ready": self.ready,
            "degraded": [f"{name}: {reason}" for name, reason in sorted(self._degraded.items())],
            "draining": self.draining,
            "sessions": self.sessions,
            "last_loss": self.last_loss,
            "counts": dict(self.counts),
        }

    def _tell(self) -> None:
        for listener in self._listeners:
            listener(self)
