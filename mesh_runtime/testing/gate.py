"""*gate*: a TCP proxy on loopback through which a test breaks a link in the ways in which links break.

A runtime dials `gate.address` instead of the broker. The gate passes on, or refuses, closes, stays silent, freezes, cuts;
it keeps a record of every connection. It forwards TLS as it is; given a TLS context it ends TLS itself, so that a test can
show another certificate than the broker's, be silent *after* the handshake, and see the client's bytes in the clear.
"""

import asyncio
import contextlib
import enum
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from mesh_runtime.testing.ca import CertificateAuthority, Leaf
from mesh_runtime.testing.ports import free_port

CHUNK = 65_536
REMEMBERED = 65_536
"""Bytes of each direction that a record keeps, from the first; it counts all."""


class Mode(enum.Enum):
    """What the gate does with connections from now on."""

    PASS = "pass"
    """Dial the target and forward both ways; what was frozen flows again."""
    REFUSE = "refuse"
    """Nothing listens: new connections are refused by the kernel. Present ones go on."""
    CLOSE = "accept-and-close"
    """New connections are accepted and closed at once. Present ones go on."""
    SILENT = "accept-and-silent"
    """New connections are accepted (with TLS: after its handshake) and get no byte. Present ones go on."""
    FREEZE = "freeze"
    """All sockets stay open and nothing is forwarded; new connections are accepted and get no byte."""


@dataclass
class Traffic:
    """What went one way through one connection."""

    count: int = 0
    """Bytes received from this side."""
    first: bytes = b""
    """The first of them, up to REMEMBERED."""
    last_at: float | None = None
    """When the last of them came (`time.monotonic`)."""

    def note(self, data: bytes) -> None:
        """Record `data` as received now."""
        self.first += data[: max(0, REMEMBERED - len(self.first))]
        self.count += len(data)
        self.last_at = time.monotonic()


@dataclass(eq=False)
class Connection:
    """One connection that a client made to the gate. Times are `time.monotonic`."""

    opened_at: float = field(default_factory=time.monotonic)
    secured_at: float | None = None
    """When a gate that ends TLS had completed the handshake."""
    closed_at: float | None = None
    """When the client's side was closed, by whomever."""
    failure: str = ""
    """Why the handshake with the client or the dial to the target failed."""
    up: Traffic = field(default_factory=Traffic)
    """From the client."""
    down: Traffic = field(default_factory=Traffic)
    """From the target."""

    @property
    def open(self) -> bool:
        """Whether the client's side still stands."""
        return self.closed_at is None


class Gate:
    """A proxy from a port of its own to `target`, both on 127.0.0.1. Use it with `async with`."""

    def __init__(self, target: int, *, mode: Mode = Mode.PASS, tls: ssl.SSLContext | None = None) -> None:
        """Take a port. With `tls` (see `serving`) the gate ends TLS on both of its sides, and verifies nothing."""
        self.target = target
        self.port = free_port()
        self.connections: list[Connection] = []
        """Every connection so far, oldest first."""
        self._mode = mode
        self._tls = tls
        self._flows = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: dict[Connection, asyncio.StreamWriter] = {}
        self._targets: dict[Connection, asyncio.StreamWriter] = {}

    @property
    def address(self) -> str:
        """What to dial, as `MESH_BROKER` says it."""
        return f"127.0.0.1:{self.port}"

    @property
    def mode(self) -> Mode:
        """What it does now."""
        return self._mode

    @property
    def open_connections(self) -> list[Connection]:
        """Those whose client's side still stands."""
        return [connection for connection in self.connections if connection.open]

    async def become(self, mode: Mode) -> None:
        """Do this from now on; REFUSE and its end take effect before this returns."""
        self._mode = mode
        if mode is Mode.FREEZE:
            self._flows.clear()
        else:
            self._flows.set()
        if mode is Mode.REFUSE:
            self._stop_listening()
        elif self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=CHUNK)

    async def parts(self, connection: Connection, upward: bool, data: bytes) -> AsyncIterator[bytes]:
        """What is forwarded of ``data``, in order: all at once. A gate that knows the protocol overrides it, to hold or drop a part."""
        yield data

    def cut(self) -> None:
        """Abort every present connection on both sides, by reset; what comes next meets the mode as it is."""
        self.cut_client()
        for writer in list(self._targets.values()):
            reset(writer)

    def cut_client(self) -> None:
        """Abort the clients' sides alone: at the broker the ghosts stay, silent, until `cut` or the end."""
        for connection, writer in list(self._clients.items()):
            self._closed(connection)
            reset(writer)

    async def __aenter__(self) -> Self:
        await self.become(self._mode)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop_listening()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name=f"gate {self.port}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection()
        self.connections.append(connection)
        self._clients[connection] = writer
        try:
            if self._mode is Mode.CLOSE:
                return
            if self._tls is not None:
                await writer.start_tls(self._tls)
                connection.secured_at = time.monotonic()
            if self._mode is Mode.SILENT:
                await self._swallow(connection, reader)
                return
            await self._flows.wait()
            await self._forward(connection, reader, writer)
        except OSError as error:
            connection.failure = f"{type(error).__name__}: {error}"
        finally:
            self._closed(connection)
            self._clients.pop(connection, None)
            await _close(writer)

    async def _forward(self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = _unverified() if self._tls is not None else None
        from_target, to_target = await asyncio.open_connection("127.0.0.1", self.target, ssl=onward, limit=CHUNK)
        self._targets[connection] = to_target
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, to_target, connection.up, connection))
                both.create_task(self._pump(from_target, writer, connection.down, connection))
        finally:
            self._targets.pop(connection, None)
            await _close(to_target)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, traffic: Traffic, connection: Connection) -> None:
        """Forward until the source ends, then end the sink. A sink that was cut swallows; its ghost is left alone."""
        try:
            while data := await source.read(CHUNK):
                traffic.note(data)
                await self._flows.wait()
                async for part in self.parts(connection, traffic is connection.up, data):
                    if connection.open:
                        sink.write(part)
                        await sink.drain()
            await self._flows.wait()
            if connection.open:
                sink.close()
        except OSError:
            if connection.open:
                reset(sink)

    async def _swallow(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK):
            connection.up.note(data)

    def _closed(self, connection: Connection) -> None:
        if connection.closed_at is None:
            connection.closed_at = time.monotonic()


def serving(leaf: Leaf, ca: CertificateAuthority | bytes) -> ssl.SSLContext:
    """Return a server's TLS context that shows `leaf` and `ca` (or its PEM), for a gate that ends TLS itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(suffix=".pem") as both:  # the ssl module loads a key from files alone
        both.write(leaf.key + leaf.certificate + (ca if isinstance(ca, bytes) else ca.certificate))
        both.flush()
        context.load_cert_chain(both.name)
    return context


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def reset(writer: asyncio.StreamWriter) -> None:
    """Close the socket so that its peer sees a reset, not an end (SO_LINGER of zero)."""
    plain: socket.socket | None = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        if plain is not None and plain.fileno() >= 0:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()
