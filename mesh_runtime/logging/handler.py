"""Where a line leaves the process: one write per record, and never an exception back to whoever logged."""

import contextlib
import logging
from typing import TextIO

from mesh_runtime.logging.rendering import LineFormatter


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes each record as one line. What cannot be rendered is replaced; what cannot be written is dropped."""

    def __init__(self, stream: TextIO, formatter: LineFormatter) -> None:
        super().__init__(stream)
        self._lines = formatter
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line, or the placeholder for it."""
        try:
            super().emit(record)
        except RecursionError:  # the one error that the standard library lets out, since a handler of its own might log again
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (the standard library's name)
        """Write a placeholder for the record; `StreamHandler.emit` calls this for whatever rendering or writing raised.

        The standard library would print a traceback to stderr here, unmasked.
        """
        # OSError: the reader of our output is gone. ValueError: the stream is closed, or cannot encode the text.
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(self._lines.unrenderable(record) + self.terminator)
            self.flush()
