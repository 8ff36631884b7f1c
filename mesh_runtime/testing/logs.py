"""*logs*: everything that a process writes, and everything that this process logs, at DEBUG, to be searched and waited for.

A line is kept as it came, with the time of its coming; what is JSON can be asked for by its fields. Nothing is dropped and nothing is
masked here: a secret that is found in it has truly been written.
"""

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

#: Bytes of one line above which asyncio would refuse to read on: a traceback in one JSON line can be long.
LINE_LIMIT = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """One line: when it came (``time.monotonic``), on ``stdout`` or ``stderr``, and its text without the line end."""

    at: float
    stream: str
    text: str

    @property
    def record(self) -> dict[str, Any]:
        """The line as a log record; empty if it is no JSON object."""
        try:
            record = json.loads(self.text)
        except ValueError:
            return {}
        return record if isinstance(record, dict) else {}


class Logs:
    """The lines of one process, in the order of their coming."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._came = asyncio.Event()

    def add(self, stream: str, text: str) -> None:
        """A line came."""
        self.lines.append(Line(time.monotonic(), stream, text))
        self._came.set()

    async def follow(self, stream: str, reader: asyncio.StreamReader) -> None:
        """Read lines until the stream ends."""
        while line := await reader.readline():
            self.add(stream, line.decode(errors="replace").rstrip("\n"))

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(line.text for line in self.lines)

    def records(self, **fields: Any) -> list[dict[str, Any]]:
        """The records whose fields have these values."""
        records = (line.record for line in self.lines)
        return [one for one in records if one and all(one.get(name) == value for name, value in fields.items())]

    async def until(self, within: float = 10.0, **fields: Any) -> dict[str, Any]:
        """The first record with these fields, already there or still to come. Raises AssertionError with the last lines."""
        deadline = time.monotonic() + within
        while not (found := self.records(**fields)):
            self._came.clear()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._came.wait()
            except TimeoutError:
                last = "\n".join(line.text for line in self.lines[-15:])
                raise AssertionError(f"no record with {fields} within {within:g} s; the last lines:\n{last}") from None
        return found[0]


class _Keeping(logging.Handler):
    def __init__(self, kept: list[logging.LogRecord]) -> None:
        super().__init__(logging.DEBUG)
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        self._kept.append(record)


@contextmanager
def own_records(level: int = logging.DEBUG) -> Iterator[list[logging.LogRecord]]:
    """The records that this process logs while the context lasts, from every logger, from ``level`` on."""
    kept: list[logging.LogRecord] = []
    root, handler = logging.getLogger(), _Keeping(kept)
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield kept
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
