"""One grant that was entered: the author's context, open in a task of its own until it is left.

A task of its own, since what an author opens in it may be bound to the task that opened it (a task group, a time-out), and whoever leaves a
grant is another one than who entered it. A context that is cut while it is entered leaves nothing open.
"""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from mesh_runtime.contracts.granting import Access
from mesh_runtime.grants.granted import GrantedMethod
from mesh_runtime.tasks import attempt, not_exiting

log = structlog.stdlib.get_logger(__name__)

#: Seconds that a context may take to end once it is cut, before it is left to itself.
CUT_WITHIN = 0.4
#: Seconds that leaving may take before it is cut.
LEAVE_WITHIN = 10.0


@dataclass(frozen=True, slots=True)
class Grant:
    """What was granted: ``access`` for ``resource`` (its text), by ``issuer``, under ``sequence``, sealed to the public key ``key``."""

    resource: str
    sequence: int
    issuer: str
    key: str
    access: Access


class NeverEntered(Exception):
    """A context ended before it could be used, and raised nothing."""


class Entered:
    """A context that is being entered, is in force, or is left. ``value`` is what it yielded."""

    def __init__(self, grant: Grant, method: GrantedMethod[Any], module: object, on_end: "Callable[[Entered], None]") -> None:
        """``on_end`` is called if it ends although nobody has left it."""
        self.grant = grant
        self.value: Any = None
        self.where = f"{type(module).__name__}.{method.name}"
        self._entering = contextlib.asynccontextmanager(method.method)(module, grant.access)
        self._on_end = on_end
        self._entered = asyncio.Event()
        self._leaving = asyncio.Event()
        self._free = asyncio.Event()
        self._holders = 0
        self._counting = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._error: Exception | None = None
        self._task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------------------------------------ handlers

    @property
    def held(self) -> bool:
        """Whether a handler that has not ended uses it."""
        return self._holders > 0

    def taken(self) -> None:
        """A handler takes hold of it. From any thread."""
        with self._counting:
            self._holders += 1

    def let_go(self) -> None:
        """That handler has ended. From any thread."""
        with self._counting:
            self._holders -= 1
            last = not self._holders
        if last:
            with contextlib.suppress(RuntimeError):  # the loop may be gone
                self._loop.call_soon_threadsafe(self._free.set)

    async def free(self) -> None:
        """Return once no handler uses it. No other takes hold of it any more: another grant stands in its slot."""
        while self._holders:
            self._free.clear()
            await self._free.wait()

    # ------------------------------------------------------------------------------------------------ its life

    async def enter(self, context: contextvars.Context) -> None:
        """Enter it; raises what it raised. Cut, it is ended, and leaves nothing open."""
        self._task = task = self._loop.create_task(self._live(), name=f"grant {self.grant.resource}", context=context)
        entered = asyncio.ensure_future(self._entered.wait())
        try:
            await asyncio.wait([task, entered], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._cut(CUT_WITHIN)
            raise
        finally:
            entered.cancel()
        if task.done():
            raise self._error or NeverEntered(f"{self.where} ended as soon as it was entered")

    async def leave(self, within: float | None = None) -> None:
        """Leave it, by force after ``within`` seconds (``LEAVE_WITHIN``). What it raises is logged. Twice is once."""
        within = LEAVE_WITHIN if within is None else within
        self._leaving.set()
        if self._task is None:
            return
        await asyncio.wait([self._task], timeout=within)
        if not self._task.done():
            log.error("a grant's context does not end and is cut", grant=self.where, sequence=self.grant.sequence, seconds=within)
            await self._cut(CUT_WITHIN)

    async def _cut(self, within: float) -> None:
        self._leaving.set()  # one that goes on in spite of it leaves as soon as it has entered
        if self._task is not None and not self._task.done():
            self._task.cancel("the grant is left")
            await asyncio.wait([self._task], timeout=within)

    async def _live(self) -> None:
        try:
            self._error = await attempt(not_exiting(self._opened()))
        finally:
            if self._entered.is_set() and not self._leaving.is_set():
                self._on_end(self)
        if self._entered.is_set() and self._error is not None:
            log.error("a grant's context raised", grant=self.where, sequence=self.grant.sequence, exc_info=self._error)

    async def _opened(self) -> None:
        async with self._entering as value:
            self.value = value
            self._entered.set()
            await self._leaving.wait()
