"""Waiting for a condition, with a deadline: what a test does instead of sleeping."""

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, overload

T = TypeVar("T")


@overload
async def until(condition: Callable[[], Coroutine[Any, Any, T]], what: str = "", *, within: float = 5.0, every: float = 0.01) -> T: ...


@overload
async def until(condition: Callable[[], T], what: str = "", *, within: float = 5.0, every: float = 0.01) -> T: ...


async def until(condition: Callable[[], Any], what: str = "", *, within: float = 5.0, every: float = 0.01) -> Any:
    """Return the first value of `condition` that is true; look every `every` seconds. A coroutine function is awaited.

    Raises AssertionError with `what` was waited for and the last value seen, `within` seconds (of real time) from now.
    """
    deadline = time.monotonic() + within
    while True:
        value = condition()
        seen = await value if inspect.isawaitable(value) else value
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"{what or condition} did not come true within {within:g} s; last seen: {seen!r}")
        await asyncio.sleep(every)
