"""Running an author's blocking code in a thread of its own, so that it cannot starve the loop that owns the link.

Not the loop's default executor: ``asyncio.run`` joins that one at the end, so a blocked thread would hold up a SIGTERM. These threads are
daemons and each lives for one call.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *args: Any, name: str) -> T:
    """Call ``function`` in a new daemon thread, in a copy of this context, and return what it returns or raise what it raises."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def end(result: T | None, error: BaseException | None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(result)  # type: ignore[arg-type]  # no error: there is a result
        elif isinstance(error, StopIteration):
            ended.set_exception(RuntimeError("StopIteration"))
        else:
            ended.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = context.run(function, *args)
        except BaseException as raised:  # noqa: BLE001 - carried to the awaiting task, which raises it
            error = raised
        with suppress(RuntimeError):  # the loop may be gone
            loop.call_soon_threadsafe(end, result, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await ended
