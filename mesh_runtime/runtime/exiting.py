"""An author's ``sys.exit()`` is an error of that code, not the end of the process.

asyncio lets ``SystemExit`` out of the loop from whatever task raised it, so that a library which calls it deep inside would end a runtime
without draining, with any exit code. A process ends by itself for the two reasons that the design names, and for no other.
"""

from collections.abc import Awaitable


class CalledExit(RuntimeError):
    """The module's code called ``sys.exit()``."""


async def not_exiting(work: Awaitable[object]) -> None:
    """Await an author's code; its ``SystemExit`` is raised as ``CalledExit``."""
    try:
        await work
    except SystemExit as left:
        raise CalledExit(f"the module's code called sys.exit({left.code!r})") from left
