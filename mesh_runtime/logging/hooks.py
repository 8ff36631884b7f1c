"""The interpreter's last words go through the log too: what nobody caught, in any thread, finaliser or task.

Without these hooks such a traceback goes to stderr as it is: not JSON and not masked. faulthandler stays on stderr: it speaks
when the process can run no Python any more, and prints names of functions only, never a value.
"""

import asyncio
import faulthandler
import logging
import sys
import threading
from types import TracebackType
from typing import Any

_logger = logging.getLogger("python")


def install_hooks() -> None:
    """Take over `sys.excepthook`, `threading.excepthook`, `sys.unraisablehook` and warnings; enable faulthandler."""
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable
    logging.captureWarnings(True)
    if not faulthandler.is_enabled() and sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)


def install_loop_hook(loop: asyncio.AbstractEventLoop) -> None:
    """Let this event loop report by the log what no task or callback handled, exceptions never retrieved included."""
    loop.set_exception_handler(_unhandled_in_loop)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _logger.critical("uncaught exception, the process ends", exc_info=(kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit or args.exc_value is None:
        return
    name = args.thread.name if args.thread is not None else "?"
    trace = (args.exc_type, args.exc_value, args.exc_traceback)
    _logger.critical("uncaught exception, the thread ends", exc_info=trace, extra={"thread_name": name})


def _unraisable(args: "sys.UnraisableHookArgs") -> None:
    said = args.err_msg or "Exception ignored in"
    trace = (args.exc_type, args.exc_value, args.exc_traceback) if args.exc_value is not None else None
    _logger.error(said, exc_info=trace, extra={"in": args.object})


def _unhandled_in_loop(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    said = context.get("message") or "unhandled exception in the event loop"
    details = {f"in_{key}": value for key, value in context.items() if key not in ("message", "exception")}
    logging.getLogger("asyncio").error(said, exc_info=context.get("exception"), extra=details)
