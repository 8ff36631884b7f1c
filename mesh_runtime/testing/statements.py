"""*statements*: a proxy before a PostgreSQL that knows where each statement begins and ends, and makes trouble at any one of them.

It records every statement that passes, so that a test learns from outside which there are, and can then cut the link before or after each
of them, refuse each, or do something of its own there (kill the server, kill the client). It speaks PostgreSQL's protocol 3 without TLS.
Source: PostgreSQL documentation, chapter 55, *Frontend/Backend Protocol*.
"""

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from mesh_runtime.testing.gate import reset
from mesh_runtime.testing.ports import free_port

_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102


@dataclass(frozen=True)
class Trouble:
    """What is to happen at one statement, counted from 0 over all sessions since the trouble was set.

    ``cut-before``: it does not reach the server, and the session is gone. ``cut-after``: the server has done it, and the session is gone
    before the client hears so. ``refuse``: it does not reach the server, and the client is told ``sqlstate`` and ``words``. ``act`` is
    awaited first, when the statement has been held back, or after ``cut-after`` has been done.
    """

    at: int
    kind: Literal["cut-before", "cut-after", "refuse"]
    sqlstate: str = "XX000"
    words: str = "refused by the test"
    act: Callable[[], Awaitable[object]] | None = None


@dataclass(eq=False)
class _Session:
    """One session: its four ends, and what the server last said of its transaction."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    from_server: asyncio.StreamReader
    to_server: asyncio.StreamWriter
    status: bytes = b"I"
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    mute: bool = False


class Statements:
    """A proxy from a port of its own to the server's, both on 127.0.0.1. Use it with `async with`."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_port()
        self.seen: list[str] = []
        """Every statement that a client sent since `expect`, in order."""
        self.happened = False
        """Whether the trouble that was set has come."""
        self._trouble: Trouble | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def expect(self, trouble: Trouble | None = None) -> None:
        """Count from 0 again, and make this trouble (or none)."""
        self.seen, self.happened, self._trouble = [], False, trouble

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name=f"statements {self.port}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            first = await self._startup(reader, writer)
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self.target)
            ends.append(to_server)
            to_server.write(first)
            session = _Session(reader, writer, from_server, to_server)
            down = asyncio.get_running_loop().create_task(self._down(session), name="from the server")
            up = asyncio.get_running_loop().create_task(self._up(session), name="to the server")
            try:
                await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (up, down):
                    task.cancel()
                await asyncio.gather(up, down, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for end in ends:
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    async def _startup(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        while True:
            head = await reader.readexactly(8)
            length, code = struct.unpack("!II", head)
            rest = await reader.readexactly(length - 8)
            if code not in (_SSL, _GSS):
                return head + rest
            writer.write(b"N")

    async def _up(self, session: _Session) -> None:
        """From the client, statement by statement: a message `Query`, or all up to a `Sync`."""
        held, text = b"", ""
        while True:
            kind, message = await _message(session.reader)
            held += message
            if kind == b"Q":
                text = message[5:-1].decode("utf-8", "replace")
            elif kind == b"P":
                text = message[5:].split(b"\0")[1].decode("utf-8", "replace")
            elif kind not in b"SXpHdcf":
                continue
            if kind in b"QS" and text:
                if not await self._statement(session, held, text):
                    return
            else:
                session.to_server.write(held)
                await session.to_server.drain()
            if kind != b"P":
                held, text = b"", ""

    async def _statement(self, session: _Session, data: bytes, text: str) -> bool:
        """Pass one statement on, or make the trouble; False if the session is to end."""
        number = len(self.seen)
        self.seen.append(text)
        trouble = self._trouble if self._trouble is not None and self._trouble.at == number else None
        if trouble is None:
            session.to_server.write(data)
            await session.to_server.drain()
            return True
        self.happened = True
        if trouble.kind == "cut-after":
            session.mute = True
            session.answered.clear()
            session.to_server.write(data)
            await session.answered.wait()
        if trouble.act is not None:
            await trouble.act()
        if trouble.kind != "refuse":
            reset(session.writer)
            return False
        session.writer.write(_refusal(trouble, session.status))
        return True

    async def _down(self, session: _Session) -> None:
        while True:
            kind, message = await _message(session.from_server)
            if kind == b"Z":
                session.status = message[5:6]
            if not session.mute:
                session.writer.write(message)
                await session.writer.drain()
            if kind == b"Z":
                session.answered.set()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!I", head[1:])
    return head[:1], head + await reader.readexactly(length - 4)


def _refusal(trouble: Trouble, status: bytes) -> bytes:
    """The messages `ErrorResponse` and `ReadyForQuery`: a transaction that stood has failed."""
    fields = {"S": "ERROR", "V": "ERROR", "C": trouble.sqlstate, "M": trouble.words}
    body = b"".join(key.encode() + value.encode() + b"\0" for key, value in fields.items()) + b"\0"
    ready = b"I" if status == b"I" else b"E"
    return b"E" + struct.pack("!I", len(body) + 4) + body + b"Z" + struct.pack("!I", 5) + ready
