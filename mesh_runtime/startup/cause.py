"""Why a stage is not done: *waiting* (time mends it) or *blocked* (somebody must act).

There is no third kind. What is unknown is *waiting*, so that no surprise ends a process that may still come right.
"""

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """One thing that must be true before a runtime is ready, in the order in which they are climbed."""

    SETTINGS = "settings"
    RESOLVE = "resolve"
    REACH = "reach"
    TRUST = "trust"
    LOGIN = "login"
    TOPOLOGY = "topology"
    GRANTS = "grants"
    PREPARE = "prepare"
    PROOF = "proof"
    READY = "ready"


class Kind(StrEnum):
    """Whether time mends a cause or somebody must act."""

    WAITING = "waiting"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a stage is not done yet.

    ``code`` is stable and short (``refused``, ``wrong-name``, ``no-permission``); ``text`` is for people, names addresses, names and
    times and is never empty; ``on`` says on whom it waits (an address, a login, a module), or nothing.
    """

    kind: Kind
    code: str
    text: str
    on: str = ""

    def __post_init__(self) -> None:
        if not self.text.strip():
            object.__setattr__(self, "text", f"{self.code} (the other side gave no words)")


class StageFault(Exception):
    """A stage could not be done now. Carries the stage and its cause; the climb goes on at that stage's pace."""

    def __init__(self, stage: Stage, cause: Cause) -> None:
        super().__init__(f"{stage}: {cause.text}")
        self.stage = stage
        self.cause = cause


def waiting(stage: Stage, code: str, text: str, on: str = "") -> StageFault:
    """A fault that time mends."""
    return StageFault(stage, Cause(Kind.WAITING, code, text, on))


def blocked(stage: Stage, code: str, text: str, on: str = "") -> StageFault:
    """A fault that stands until somebody acts; it is tried again all the same, at a slow pace."""
    return StageFault(stage, Cause(Kind.BLOCKED, code, text, on))
