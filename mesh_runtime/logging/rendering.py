"""From a record to one line: the same fields for every logger of the process, masked, and always valid JSON.

A record of the standard library, of structlog, of a warning or of one of the interpreter's hooks all come here. Fields
are `time` (UTC, ISO 8601), `level`, `logger`, `event`, then what was bound (`structlog.contextvars`) or passed along, then
`exception` and `stack`. Tracebacks keep their chained causes and notes and never show local variables.
"""

import json
import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from structlog.contextvars import get_contextvars
from structlog.dev import ConsoleRenderer, plain_traceback

from mesh_runtime.logging.masking import Masking
from mesh_runtime.logging.plain import plain_under, safe_repr, shown

OWN_FIELDS = ("time", "level", "logger", "event", "exception", "stack")
"""Fields that a line has by itself; something passed along under such a name gets an underscore behind it."""

_OF_EVERY_RECORD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"message", "asctime", "taskName"}
_NOT_A_FIELD = frozenset({"event", "exc_info", "stack_info", "positional_args"})


class LineFormatter(logging.Formatter):
    """Renders each record as a line of JSON, or for the console."""

    def __init__(self, render: Callable[[dict[str, Any]], str], masking: Masking) -> None:
        super().__init__()
        self._render = render
        self._masking = masking

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, without its end. Raises whatever a message that does not fit its arguments does."""
        passed, event = self._passed_and_event(record)
        fields = self._head(record, event)
        for key, value in passed.items():
            name = f"{key}_" if key in OWN_FIELDS else key
            fields[shown(name, self._masking)] = plain_under(name, value, self._masking)
        if text := _traceback_of(record.exc_info or _exc_info(_structlog_field(record, "exc_info"))):
            fields["exception"] = shown(text, self._masking)
        if stack := record.stack_info or _structlog_field(record, "stack"):
            fields["stack"] = shown(str(stack), self._masking)
        return self._render(fields)

    def unrenderable(self, record: logging.LogRecord) -> str:
        """Return a line in place of a record that could not be rendered, with why. Calls nothing of the record's."""
        error = sys.exc_info()[1]
        fields = self._head(record, "a log record could not be rendered")
        fields["template"] = shown(safe_repr(record.msg), self._masking)
        fields["error"] = type(error).__name__
        fields["at"] = f"{record.filename}:{record.lineno}"
        return self._render(fields)

    def _head(self, record: logging.LogRecord, event: str) -> dict[str, Any]:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": shown(record.name, self._masking),
            "event": shown(event, self._masking),
        }

    def _passed_and_event(self, record: logging.LogRecord) -> tuple[dict[str, Any], str]:
        passed: dict[str, Any] = dict(get_contextvars())
        if (fields := _of_structlog(record)) is None:
            passed |= {key: value for key, value in vars(record).items() if key not in _OF_EVERY_RECORD}
            return passed, record.getMessage()
        passed |= {key: value for key, value in fields.items() if key not in _NOT_A_FIELD and key != "stack"}
        event = fields.get("event", "")
        text = event if isinstance(event, str) else safe_repr(event)
        return passed, text % fields["positional_args"] if "positional_args" in fields else text


def as_json(fields: dict[str, Any]) -> str:
    """Return the fields as one line of ASCII JSON, whatever line ends and characters stand in them."""
    return json.dumps(fields, ensure_ascii=True, allow_nan=False)


def for_console(colors: bool) -> Callable[[dict[str, Any]], str]:
    """Return a renderer for people at a terminal."""
    renderer = ConsoleRenderer(colors=colors, exception_formatter=plain_traceback, timestamp_key="time", sort_keys=False)
    return lambda fields: str(renderer(None, "", fields))


def _of_structlog(record: logging.LogRecord) -> Mapping[str, Any] | None:
    return record.msg if isinstance(record.msg, dict) and hasattr(record, "_logger") else None


def _structlog_field(record: logging.LogRecord, key: str) -> object:
    fields = _of_structlog(record)
    return None if fields is None else fields.get(key)


def _exc_info(passed: object) -> tuple[Any, Any, Any] | None:
    # The shapes in which `exc_info` may be passed: an exception, a triple, or a true value for "the one being handled".
    match passed:
        case BaseException():
            return type(passed), passed, passed.__traceback__
        case (kind, BaseException() as error, trace):
            return kind, error, trace
        case _ if passed:
            return sys.exc_info()
        case _:
            return None


def _traceback_of(exc_info: tuple[type[BaseException] | None, BaseException | None, TracebackType | None] | None) -> str:
    if exc_info is None or exc_info[1] is None:
        return ""
    return "".join(traceback.TracebackException(*exc_info, capture_locals=False).format()).rstrip()  # type: ignore[arg-type]
