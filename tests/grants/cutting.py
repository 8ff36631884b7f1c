"""Kill -9, from outside: a piece of work is driven await by await, and at one of them its process is over.

What is cut need not know it. What the work had begun in a thread ends first, as a system call does that a killed process had made.
"""

import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


class Killed(BaseException):
    """The process ended here. No ``except Exception`` sees it."""


@types.coroutine
def _until(work: Coroutine[Any, Any, T], at: int, by: type[BaseException]) -> Generator[Any, Any, T]:
    error: BaseException | None = None
    awaits = 0
    while True:
        try:
            waited = work.send(None) if error is None else work.throw(error)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        awaits, error = awaits + 1, None
        try:
            yield waited
        except BaseException as raised:  # noqa: BLE001 - handed on to the work
            error = raised
        if awaits == at:
            try:
                work.throw(by())
            except by:
                raise Killed from None
            except StopIteration:
                pass
            work.close()
            raise AssertionError(f"{by.__name__} was swallowed, or held up")


async def cut(work: Coroutine[Any, Any, T], at: int, by: type[BaseException] = Killed) -> T | None:
    """Do ``work`` and end it by ``by`` when its ``at``-th await has ended (from 1). None if it was ended, else what it returned."""
    try:
        return await _until(work, at, by)
    except Killed:
        return None


async def each_cut(work: Callable[[], Awaitable[Coroutine[Any, Any, object]]], by: type[BaseException] = Killed) -> AsyncIterator[int]:
    """Ends ``work``, made anew each time, at its first await, at its second, and so on until it is not reached any more.

    Yields after each: the number of the await.
    """
    at, over = 1, False
    while not over:
        coroutine = await work()
        ended = _Ended()
        await cut(_noting(coroutine, ended), at, by)
        over = ended.whole
        if not over:
            yield at
        at += 1


@dataclass
class _Ended:
    whole: bool = False


async def _noting(work: Coroutine[Any, Any, object], ended: _Ended) -> None:
    await work
    ended.whole = True
