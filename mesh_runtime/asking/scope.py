"""On whose behalf code runs: the level, the deadline and the record of questions that asks made from here are charged to.

The library opens a scope around each handler of an author's that it calls. A scope travels with the context, so tasks and
``asyncio.to_thread`` inherit it. Code that serves no handler now (a thread of the author's own making, ``keep``, a task that outlived the
handler which started it) may still ask on behalf of a compose, as a shared worker does: what it asks is charged to every compose in
flight (see ``record``).
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mesh_runtime.asking.record import QuestionRecord
from mesh_runtime.contracts.wire import LEVELS

T = TypeVar("T")

#: Bytes of a short string. Source: AMQP 0-9-1, 4.2.5.3.
SHORT_LIMIT = 255


#: Taken for the moment in which a scope keeps something or ends: both may come from different threads.
_ending = threading.Lock()


@dataclass(slots=True, eq=False)
class Scope:
    """``level`` is the level of the ask being answered, or nothing outside of asks; ``deadline`` is in the loop's time.

    ``over`` is set once the handler has ended: whatever still runs in this scope then runs on nobody's behalf.
    """

    what: str
    level: str = ""
    deadline: float | None = None
    record: QuestionRecord | None = None
    correlation: str = ""
    trace: str = ""
    sender: str = ""
    over: bool = field(default=False, init=False)
    _kept: dict[object, tuple[Any, Callable[[], None]]] | None = field(default=None, init=False)

    def kept(self, key: object, take: Callable[[], tuple[T, Callable[[], None]]]) -> T:
        """What ``take`` gave when this scope first asked for ``key``; its second part is called once the scope has ended.

        From any thread. A scope that ended meanwhile gets it and gives it back at once.
        """
        with _ending:
            kept = self._kept
            if kept is None:
                kept = self._kept = {}
            if key in kept:
                return kept[key][0]  # type: ignore[no-any-return]  # what take gave for this key
            value, give_back = take()
            if not self.over:
                kept[key] = value, give_back
                return value
        give_back()
        return value

    def end(self) -> None:
        """The handler has ended: give back what was kept for it."""
        with _ending:
            self.over = True
            kept, self._kept = self._kept, None
        if kept is not None:
            for _, give_back in kept.values():
                give_back()

    def allows(self, level: str) -> bool:
        """Whether an ask of this level may be made here: only below the scope's own level."""
        return not self.level or LEVELS.index(level) > LEVELS.index(self.level)


_current: ContextVar[Scope | None] = ContextVar("mesh_scope", default=None)


def current_scope() -> Scope | None:
    """The scope of the running code, or nothing in code that serves no handler now."""
    scope = _current.get()
    return None if scope is None or scope.over else scope


@contextmanager
def scoped(scope: Scope) -> Iterator[Scope]:
    """Run the body on behalf of ``scope``."""
    token = _current.set(scope)
    try:
        yield scope
    finally:
        scope.end()
        _current.reset(token)


def carried(text: str) -> str:
    """As much of an id as AMQP carries in a property (255 bytes): one that was no UTF-8 has grown when it was read."""
    if len(text) * 4 <= SHORT_LIMIT:  # no character takes more than four bytes: nearly all that travels is this short
        return text
    raw = text.encode(errors="replace")
    return text if len(raw) <= SHORT_LIMIT else raw[:SHORT_LIMIT].decode(errors="ignore")


def trace_header(trace: str) -> str:
    """W3C Trace Context, version 00: ``00-<trace>-<span>-01``; a new trace where none is given."""
    return f"00-{trace or format(random.getrandbits(128) or 1, '032x')}-{random.getrandbits(64) or 1:016x}-01"
