"""Opening a session, so that nothing of an attempt that failed is left: not its socket, nor a thread that holds up the end of the process.

The driver's own `connect` leaves the socket of an attempt that timed out or was cancelled to the garbage collector, and resolves names in
the loop's executor. So its documented parts below that (`psycopg.pq`, libpq's asynchronous connect) are used here.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.errors import ConnectionTimeout
from psycopg.pq import ConnStatus, PollingStatus

from mesh_runtime.runtime.threads import in_thread

Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]

#: Seconds for one attempt at one address.
CONNECT = 5.0

#: Once it is here a server has been spoken to, and what it says is the answer: no other address is tried.
_SPOKEN = (ConnStatus.AWAITING_RESPONSE, ConnStatus.AUTH_OK)


class _Refused(psycopg.OperationalError):
    """The server itself ended the attempt."""


async def open_session(fields: Mapping[str, Any]) -> Connection:
    """A session by libpq's fields, at the first of its host's addresses that lets us in. Raises psycopg.Error, OSError."""
    failure: psycopg.Error | None = None
    for address in await _addresses(fields["host"], fields["port"]):
        try:
            link = await _linked(make_conninfo(**fields, **address))
        except _Refused:
            raise
        except psycopg.OperationalError as error:
            failure = error
            continue
        connection: Connection = psycopg.AsyncConnection(link)
        try:
            connection.prepare_threshold = None
            await connection.set_autocommit(True)
        except BaseException:  # also a cancellation: when the loop was busy, the driver lets others go first
            await connection.close()
            raise
        return connection
    raise failure or psycopg.OperationalError(f"{fields['host']} has no address")


async def _addresses(host: str, port: int) -> list[dict[str, str]]:
    """The host's addresses as libpq's field `hostaddr`; none for a directory with sockets."""
    if host.startswith("/"):
        return [{}]
    with suppress(ValueError):
        return [{"hostaddr": str(ipaddress.ip_address(host))}]
    found = await in_thread(socket.getaddrinfo, host, port, 0, socket.SOCK_STREAM, name=f"resolve {host}")
    return [{"hostaddr": address} for address in dict.fromkeys(str(row[4][0]) for row in found)]


async def _linked(conninfo: str) -> pq.abc.PGconn:
    link = pq.PGconn.connect_start(conninfo.encode())
    try:
        async with asyncio.timeout(CONNECT):
            await _polled(link)
    except TimeoutError:
        link.finish()
        raise ConnectionTimeout(f"connection timeout expired after {CONNECT:g} s") from None
    except BaseException:  # released, whatever it was
        link.finish()
        raise
    link.nonblocking = 1
    return link


async def _polled(link: pq.abc.PGconn) -> None:
    """Source: PostgreSQL documentation, 34.1, `PQconnectPoll`."""
    loop = asyncio.get_running_loop()
    step, kind = PollingStatus.WRITING, psycopg.OperationalError
    while step is not PollingStatus.OK:
        if link.status == ConnStatus.BAD or step is PollingStatus.FAILED:
            raise kind(f"connection failed: {link.get_error_message()}")
        if link.status in _SPOKEN:
            kind = _Refused
        if step is PollingStatus.READING:
            await _ready(link.socket, loop.add_reader, loop.remove_reader)
        else:
            await _ready(link.socket, loop.add_writer, loop.remove_writer)
        step = PollingStatus(link.connect_poll())


async def _ready(descriptor: int, watch: Callable[..., object], leave: Callable[[int], object]) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    watch(descriptor, tell)
    try:
        await ready
    finally:
        leave(descriptor)
