"""A real TLS server on loopback for each fault that a handshake can have."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mesh_runtime.trust import Authority, Issued, chain_of, reading_context

NAME = "broker.mesh"

Accepted = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority.create("mesh test")


def server_context(tmp_path: Path, issued: Issued, *more: bytes) -> ssl.SSLContext:
    """A server's context that sends this certificate and then those in `more` (PEM)."""
    issued.save(tmp_path / "leaf.pem", tmp_path / "leaf.key")
    (tmp_path / "chain.pem").write_bytes(b"".join([issued.certificate, *more]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "chain.pem", tmp_path / "leaf.key")
    return context


async def presented_to_anybody(port: int, name: str) -> list[bytes]:
    """The chain that a server on loopback presents for this name, by a handshake that trusts nothing and then hangs up."""
    async with asyncio.timeout(5):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=reading_context(), server_hostname=name)
    try:
        return chain_of(writer.get_extra_info("ssl_object"))
    finally:
        writer.transport.abort()


class Listener:
    """What a server heard, and where it listens."""

    def __init__(self) -> None:
        self.port = 0
        self.heard = b""


@asynccontextmanager
async def listener(context: ssl.SSLContext | None, accepted: Accepted | None = None) -> AsyncIterator[Listener]:
    """Listen on loopback; keep what is read after the handshake, or do as `accepted` says with each connection."""
    state = Listener()

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if accepted is not None:
                await accepted(reader, writer)
            else:
                while data := await reader.read(1024):
                    state.heard += data
        except OSError:
            pass
        finally:
            writer.close()

    loop = asyncio.get_running_loop()
    # A refused handshake is reported by the server's side too; that side is not what is tested.
    loop.set_exception_handler(lambda _, __: None)
    server = await asyncio.start_server(read, "127.0.0.1", 0, ssl=context, ssl_shutdown_timeout=0.2 if context else None)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()
