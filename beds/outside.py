"""The bed's own clients: they ask as an outsider does, and tell when the broker accepts TLS and when an ask is answered.

The bed makes two logins that no mesh has otherwise: ``bed@MACHINE``, which asks lookups and tells what the consumer of a grant writes down,
and ``controller@bed``, which may ask a module to compose. Both are the lab's alone.
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

from mesh_runtime.asking import Asker
from mesh_runtime.asking.visiting import visit
from mesh_runtime.broker import BrokerAt, Session, SessionLost, open_session
from mesh_runtime.contracts import Identity, Manifest, Unanswered
from mesh_runtime.settings import read_credentials
from mesh_runtime.settings.address import parse_addresses
from mesh_runtime.startup import StageFault
from mesh_runtime.testing.founding import FoundedMesh
from mesh_runtime.trust import reading_context

#: Seconds between two looks.
EVERY = 0.02

ASKER = Manifest(module="bed", version="0", command=("bed",), tells=("greeted.1",))
COMPOSER = Manifest(module="controller", version="0", command=("bed",), seat="controller")


def bed_logins(machine: str) -> dict[Identity, Manifest]:
    """The logins to be made for the bed."""
    return {Identity("bed", machine): ASKER, Identity("controller", "bed"): COMPOSER}


async def accepted_tls(host: str, port: int) -> float:
    """When the broker completed a TLS handshake for the first time from now on (``time.monotonic``)."""
    context: ssl.SSLContext = reading_context()
    while True:
        try:
            async with asyncio.timeout(1.0):
                _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="broker")
        except (OSError, TimeoutError):
            await asyncio.sleep(EVERY)
            continue
        at = time.monotonic()
        writer.transport.abort()
        return at


async def answered(founded: FoundedMesh, who: Identity, ask: Callable[[Asker], Awaitable[Any]]) -> float:
    """When an outside ask of ``who`` was answered for the first time (``time.monotonic``); it dials and asks until then."""
    at = broker_at(founded, who)
    while True:
        try:
            session = await open_session(at, str(who))
        except StageFault:
            await asyncio.sleep(EVERY)
            continue
        try:
            return await _answered(session, await visit(session, who, founded.manifests[who]), ask)
        except (StageFault, SessionLost):
            await asyncio.sleep(EVERY)
        finally:
            await session.close()


async def _answered(session: Session, asker: Asker, ask: Callable[[Asker], Awaitable[Any]]) -> float:
    while not session.closed:
        try:
            await ask(asker)
        except Unanswered:
            await asyncio.sleep(EVERY)
        else:
            return time.monotonic()
    raise SessionLost("before it was answered")


def broker_at(founded: FoundedMesh, who: Identity) -> BrokerAt:
    """Where that identity finds the mesh's broker."""
    return BrokerAt(
        addresses=tuple((one.host, one.port) for one in parse_addresses(founded.broker.address)),
        name=founded.broker.name,
        vhost=founded.broker.vhost,
        heartbeat=5,
        ca_file=None,
        ca_pin=founded.pin,
        credentials=lambda: read_credentials(founded.directory / "credentials" / str(who)),
    )
