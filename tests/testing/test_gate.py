"""The gate breaks links as links break: each mode is what a client and a server see on their sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from mesh_runtime.testing.ca import CertificateAuthority
from mesh_runtime.testing.gate import Gate, Mode, serving
from mesh_runtime.testing.ports import free_port
from mesh_runtime.testing.waiting import until

Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Echo:
    """A server that sends back what it gets, and knows how each of its connections ended."""

    port: int = field(default_factory=free_port)
    open: int = 0
    endings: list[str] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.writers.append(writer)
        try:
            while data := await reader.read(1000):
                writer.write(data)
            self.endings.append("end")
        except ConnectionResetError:
            self.endings.append("reset")
        finally:
            self.open -= 1
            writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", echo.port)
    yield echo
    server.close()
    for writer in echo.writers:
        writer.transport.abort()


@pytest.fixture
async def gate(echo: Echo) -> AsyncIterator[Gate]:
    async with Gate(echo.port) as gate:
        yield gate


@pytest.fixture
async def link(gate: Gate) -> AsyncIterator[Link]:
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    await exchange((reader, writer), b"hello")
    yield reader, writer
    writer.transport.abort()


async def exchange(link: Link, data: bytes) -> None:
    reader, writer = link
    writer.write(data)
    async with asyncio.timeout(2):
        assert await reader.readexactly(len(data)) == data


async def hears_nothing(reader: asyncio.StreamReader) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await reader.read(1)


async def test_pass_forwards_both_ways_and_records_bytes_and_times(gate: Gate, link: Link) -> None:
    await exchange(link, b"again")
    [connection] = gate.connections
    assert (connection.up.count, connection.up.first) == (10, b"helloagain")
    assert (connection.down.count, connection.down.first) == (10, b"helloagain")
    assert connection.up.last_at is not None
    assert connection.opened_at <= connection.up.last_at
    assert connection.open


async def test_a_client_that_closes_is_closed_at_the_target_and_in_the_record(gate: Gate, link: Link, echo: Echo) -> None:
    link[1].close()
    await until(lambda: echo.endings == ["end"] and not gate.open_connections, "the end at the target")


async def test_a_target_that_closes_is_closed_at_the_client(link: Link, echo: Echo) -> None:
    echo.writers[0].close()
    async with asyncio.timeout(2):
        assert await link[0].read() == b""


async def test_refuse_lets_nothing_in_and_leaves_what_is_there(gate: Gate, link: Link) -> None:
    await gate.become(Mode.REFUSE)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", gate.port)
    await exchange(link, b"still here")
    await gate.become(Mode.PASS)
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    await exchange((reader, writer), b"and new")
    writer.transport.abort()


async def test_accept_and_close_ends_each_new_connection_without_a_byte(gate: Gate) -> None:
    await gate.become(Mode.CLOSE)
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    async with asyncio.timeout(2):
        assert await reader.read() == b""
    writer.close()
    assert gate.connections[0].down.count == 0


async def test_accept_and_silent_takes_bytes_and_gives_none(gate: Gate, echo: Echo) -> None:
    await gate.become(Mode.SILENT)
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    writer.write(b"anybody?")
    await until(lambda: gate.connections and gate.connections[0].up.first == b"anybody?", "its bytes are taken")
    await hears_nothing(reader)
    assert echo.open == 0
    writer.close()
    await until(lambda: not gate.open_connections, "the client's end in the record")


async def test_freeze_keeps_the_sockets_and_holds_the_bytes_until_it_passes_again(gate: Gate, link: Link, echo: Echo) -> None:
    await gate.become(Mode.FREEZE)
    link[1].write(b"held")
    await hears_nothing(link[0])
    new_reader, new_writer = await asyncio.open_connection("127.0.0.1", gate.port)
    new_writer.write(b"new")
    await hears_nothing(new_reader)
    assert echo.open == 1
    await gate.become(Mode.PASS)
    async with asyncio.timeout(2):
        assert await link[0].readexactly(4) == b"held"
        assert await new_reader.readexactly(3) == b"new"
    new_writer.transport.abort()


async def test_cut_resets_both_sides(gate: Gate, link: Link, echo: Echo) -> None:
    gate.cut()
    with pytest.raises(ConnectionResetError):
        async with asyncio.timeout(2):
            await link[0].read()
    await until(lambda: echo.endings == ["reset"], "the reset at the target")
    assert gate.open_connections == []


async def test_cut_client_leaves_a_ghost_at_the_target_until_cut(gate: Gate, link: Link, echo: Echo) -> None:
    gate.cut_client()
    with pytest.raises(ConnectionResetError):
        async with asyncio.timeout(2):
            await link[0].read()
    assert gate.open_connections == []
    echo.writers[0].write(b"a heartbeat to nobody")
    await until(lambda: gate.connections[0].down.first.endswith(b"nobody"), "what the target says to its ghost")
    assert (echo.open, echo.endings) == (1, [])
    gate.cut()
    await until(lambda: echo.endings == ["reset"], "the ghost's end")


async def test_a_target_that_is_not_there_is_named_in_the_record() -> None:
    async with Gate(free_port()) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        async with asyncio.timeout(2):
            assert await reader.read() == b""
        writer.close()
        await until(lambda: "ConnectionRefusedError" in gate.connections[0].failure, "the failed dial")


async def test_with_tls_it_shows_its_own_certificate_and_sees_the_clients_bytes() -> None:
    ca = CertificateAuthority()
    context = ssl.create_default_context(cadata=ca.certificate.decode())
    async with Gate(free_port(), mode=Mode.SILENT, tls=serving(ca.issue("broker.mesh"), ca)) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port, ssl=context, server_hostname="broker.mesh")
        writer.write(b"AMQP\x00\x00\x09\x01")
        await until(lambda: gate.connections[0].up.first == b"AMQP\x00\x00\x09\x01", "the protocol header")
        assert gate.connections[0].secured_at is not None
        await hears_nothing(reader)
        writer.transport.abort()


async def test_with_tls_a_client_that_does_not_trust_it_sends_no_byte() -> None:
    ca, other = CertificateAuthority(), CertificateAuthority()
    context = ssl.create_default_context(cadata=other.certificate.decode())
    async with Gate(free_port(), mode=Mode.SILENT, tls=serving(ca.issue("broker.mesh"), ca)) as gate:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", gate.port, ssl=context, server_hostname="broker.mesh")
        await until(lambda: not gate.open_connections, "the end of the handshake")
        assert gate.connections[0].up.count == 0
