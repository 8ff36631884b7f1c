"""Telling work to stop at a chosen one of its waits, so that a test can go through all of them.

A cancellation comes where a coroutine waits, and some waits are met only when the loop is busy. A test that is cut by the clock meets some
of them now and then; this one meets each, every time.
"""

import asyncio
import types
from collections.abc import Coroutine, Generator
from functools import partial
from itertools import count
from typing import Any, TypeVar, cast

T = TypeVar("T")


async def stopped_at(wait: int, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` as a task that is cancelled once, where it waits for the ``wait``-th time (from 0).

    Returns what it returns, which is the whole of it if it never waits so often, and raises what it raises: CancelledError, as a rule.
    The waits of tasks that it makes are not among its own.
    """

    async def watched() -> T:
        return await _watched(wait, work)

    task = asyncio.create_task(watched(), name=f"stopped at wait {wait}")
    await asyncio.wait([task])
    return task.result()


@types.coroutine
def _watched(wait: int, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    task = asyncio.current_task()
    go_on = partial(work.send, None)
    for number in count():
        try:
            awaited = go_on()
        except StopIteration as ended:
            return cast("T", ended.value)
        if number == wait and task is not None:
            task.cancel()
        try:
            go_on = partial(work.send, (yield awaited))
        except BaseException as error:  # noqa: BLE001 - handed on to where it waits
            go_on = partial(work.throw, error)
    raise AssertionError("unreachable")
