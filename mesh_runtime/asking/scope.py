"""On whose behalf code runs: the level, the deadline and the record of questions that asks made from here are charged to.

The library opens a scope around everything of an author's that it calls. A scope travels with the context, so tasks and
``asyncio.to_thread`` inherit it; a thread of the author's own making does not, and what it asks is charged to every compose in flight
(see ``record``).
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from mesh_runtime.asking.record import QuestionRecord
from mesh_runtime.contracts.wire import LEVELS


@dataclass(frozen=True, slots=True)
class Scope:
    """``level`` is the level of the ask being answered, or nothing outside of asks; ``deadline`` is in the loop's time."""

    what: str
    level: str = ""
    deadline: float | None = None
    record: QuestionRecord | None = None
    correlation: str = ""
    trace: str = ""
    sender: str = ""

    def allows(self, level: str) -> bool:
        """Whether an ask of this level may be made here: only below the scope's own level."""
        return not self.level or LEVELS.index(level) > LEVELS.index(self.level)


_current: ContextVar[Scope | None] = ContextVar("mesh_scope", default=None)


def current_scope() -> Scope | None:
    """The scope of the running code, or nothing in code that the library did not start."""
    return _current.get()


@contextmanager
def scoped(scope: Scope) -> Iterator[Scope]:
    """Run the body on behalf of ``scope``."""
    token = _current.set(scope)
    try:
        yield scope
    finally:
        _current.reset(token)


def trace_header(trace: str) -> str:
    """W3C Trace Context, version 00: ``00-<trace>-<span>-01``; a new trace where none is given."""
    return f"00-{trace or format(random.getrandbits(128) or 1, '032x')}-{random.getrandbits(64) or 1:016x}-01"
