"""Waiting for a condition, with a deadline: what a test does instead of sleeping."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")


async def until(
    condition: Callable[[], T | Awaitable[T]], what: str = "", *, within: float = 5.0, every: float = 0.01
) -> T:
    """Return the first value of `condition` that is true; look every `every` seconds (real time, not the loop's).

    Raises AssertionError with `what` was waited for and the last value seen, `within` seconds from now.
    """
    deadline = time.monotonic() + within
    while True:
        value = condition()
        seen = cast("T", await value) if inspect.isawaitable(value) else value
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"{what or condition} did not come true within {within:g} s; last seen: {seen!r}")
        await asyncio.sleep(every)
