"""Puts structlog and the standard library's logging of this process under one handler."""

import logging
import sys
from typing import Literal, TextIO

import structlog
from structlog.processors import StackInfoRenderer
from structlog.stdlib import BoundLogger, LoggerFactory, ProcessorFormatter, filter_by_level

from mesh_runtime.logging.handler import LineHandler
from mesh_runtime.logging.hooks import install_hooks
from mesh_runtime.logging.masking import NoMasking, process_masker
from mesh_runtime.logging.quieting import demote_client_noise
from mesh_runtime.logging.rendering import LineFormatter, as_json, for_console

LogFormat = Literal["json", "console"]


def configure(log_format: LogFormat = "json", level: str | int = "info", stream: TextIO | None = None, *, masking: bool = True) -> None:
    """Send every record of this process from `level` on as one line to `stream` (stdout by default).

    Takes over the loggers of the standard library, structlog, warnings and the interpreter's hooks; plain stream handlers that
    somebody attached before are removed. An event loop is taken over by `install_loop_hook`. Called again, it replaces what
    it did before. `masking=False` is for tests that prove that their search finds a secret; no setting reaches it.
    """
    out = sys.stdout if stream is None else stream
    render = as_json if log_format == "json" else for_console(colors=out.isatty())
    handler = LineHandler(out, LineFormatter(render, process_masker if masking else NoMasking()))
    threshold = level if isinstance(level, int) else logging.getLevelNamesMapping()[level.upper()]
    # The handler judges again, since a filter may have demoted a record after its logger let it pass.
    handler.setLevel(threshold)
    _remove_stream_handlers()
    logging.root.addHandler(handler)
    logging.root.setLevel(threshold)
    # Each processor runs where the call stands, so only what must see that place is here; all else is the handler's,
    # where whatever is raised is caught.
    structlog.configure(
        processors=[filter_by_level, StackInfoRenderer(), ProcessorFormatter.wrap_for_formatter],
        wrapper_class=BoundLogger,
        logger_factory=LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    demote_client_noise()
    install_hooks()


def _remove_stream_handlers() -> None:
    named = (each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger))
    for logger in (logging.root, *named):
        for handler in list(logger.handlers):
            # Exactly StreamHandler: a test runner's capture is of a class derived from it, and is left alone.
            if isinstance(handler, LineHandler) or type(handler) is logging.StreamHandler:
                logger.removeHandler(handler)
