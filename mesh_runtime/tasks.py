"""Owned tasks: no task of a runtime ends, fails or hangs without somebody being told.

The event loop keeps only weak references to tasks, and an exception in a task that nobody awaits is seen when it is too late, or
never. So every task here is started by an owner, which holds it, hears of its end from a done-callback (an essential task that
merely *returns* is reported too, and so is one that ends by a cancellation nobody here asked for), and stops all of them,
naming those that still hang and where they stand.

It refuses to start anything after a stop, and never swallows a cancellation: it looks at tasks from outside, and what catches one raises
it again, or as an error if it was meant for another.
"""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

_logger = logging.getLogger(__name__)

T = TypeVar("T")

OnEnd = Callable[[str, BaseException | None], None]
"""Told the name of an essential task that ended, and its error; None if it simply returned."""


class EndedUnasked(Exception):
    """A task, or what was awaited in it, ended by a cancellation that its owner did not ask for.

    The broker client ends pending calls on a frozen link with a bare `CancelledError`; to the task's owner that is a fault.
    """


class TaskOwner:
    """Owns tasks of one subject (a session, a runtime). Use it from one event loop only.

    `on_end` is called once for each *essential* task that ends while its owner is not stopping, after the end was logged.
    """

    def __init__(self, name: str, on_end: OnEnd | None = None) -> None:
        self._name = name
        self._on_end = on_end
        self._tasks: dict[asyncio.Task[Any], bool] = {}
        self._stopping = False

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tasks that have not ended, in the order of their start."""
        return tuple(task.get_name() for task in self._tasks)

    def start(self, coro: Coroutine[Any, Any, T], name: str, *, essential: bool = True) -> asyncio.Task[T]:
        """Start a task under this owner; it must not be awaited elsewhere for its failure to be seen.

        An essential task is one that should not end before its owner stops it. One that is not may return; its failure is logged
        all the same. Raises RuntimeError once the owner has begun to stop.
        """
        if self._stopping:
            coro.close()
            raise RuntimeError(f"{self._name} is stopping: {name} is not started")
        # The end is reported in the task's own context, so that the record carries what was bound there.
        context = contextvars.copy_context()
        task = asyncio.get_running_loop().create_task(coro, name=name, context=context)
        self._tasks[task] = essential
        task.add_done_callback(self._ended, context=context)
        return task

    async def stop(self, timeout: float) -> tuple[str, ...]:
        """Cancel all tasks and wait at most `timeout` seconds; return the names of those that still hang.

        A task that swallowed the first cancellation is cancelled again after half the time. The task that calls this is left
        out if it is one of the owner's own.
        """
        self._stopping = True
        pending = set(self._tasks) - {asyncio.current_task()}
        for _ in range(2):
            for task in pending:
                task.cancel()
            if pending:
                _, pending = await asyncio.wait(pending, timeout=timeout / 2)
        hanging = tuple(sorted(task.get_name() for task in pending))
        for task in pending:
            _logger.error("a task does not stop", extra={"owner": self._name, "task": task.get_name(), "stands": _place_of(task)})
        return hanging

    def _ended(self, task: asyncio.Task[Any]) -> None:
        essential = self._tasks.pop(task)
        name = task.get_name()
        error = self._error_of(task, essential)
        if error is not None:
            _logger.error("a task failed", exc_info=error, extra={"owner": self._name, "task": name})
        elif essential and not self._stopping:
            _logger.error("an essential task ended", extra={"owner": self._name, "task": name})
        if essential and not self._stopping and self._on_end is not None:
            self._on_end(name, error)

    def _error_of(self, task: asyncio.Task[Any], essential: bool) -> BaseException | None:
        if not task.cancelled():
            return task.exception()
        # Whoever holds a task that may end may also cancel it; a cancellation that nobody asked for is always a fault.
        if self._stopping or (task.cancelling() and not essential):
            return None
        return EndedUnasked(f"{task.get_name()} was cancelled, and not by {self._name}")


async def attempt(work: Awaitable[object]) -> Exception | None:
    """Await ``work`` and return what it raised, as a value: the guard around what may fail in any way and must not end its caller.

    A cancellation goes through, and so does whatever is no ``Exception``.
    """
    try:
        await work
    except Exception as error:  # noqa: BLE001 - the task guard
        return error
    return None


class CalledExit(RuntimeError):
    """A module's code called ``sys.exit()``."""


async def not_exiting(work: Awaitable[object]) -> None:
    """Await an author's code; what would end the process, though it says nothing of the process, is raised as an error like any other.

    ``SystemExit`` is raised as ``CalledExit``: asyncio lets it out of the loop from whatever task raised it, so that a library which calls
    it deep inside would end a runtime without draining, with any exit code. A cancellation that was not meant for this task (of something
    that the code awaits) is raised as ``EndedUnasked``. A process ends by itself for the two reasons that the design names, no other.
    """
    try:
        await work
    except SystemExit as left:
        raise CalledExit(f"the module's code called sys.exit({left.code!r})") from left
    except asyncio.CancelledError as stray:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise EndedUnasked("what the module's code awaited was cancelled, and not by its runtime") from stray


def _place_of(task: asyncio.Task[Any]) -> str:
    """Return where a task waits: each coroutine from its first to the innermost, as `function (file:line)`."""
    places: list[str] = []
    inner: Any = task.get_coro()
    while (frame := getattr(inner, "cr_frame", None)) is not None:
        places.append(f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})")
        inner = inner.cr_await
    return " > ".join(places) or "?"
