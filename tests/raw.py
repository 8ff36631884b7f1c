"""A login that speaks to the mesh by hand: sends whatever it is given, as no sound runtime would, and keeps every reply."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pamqp import commands

from mesh_runtime.broker import BrokerAt, Delivery, Properties, Session, Wire, open_session
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.manifest import Manifest
from mesh_runtime.settings import read_credentials
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until


@dataclass
class Raw:
    """``replies`` in the order of their coming."""

    identity: Identity
    session: Session
    line: Wire
    replies: list[Delivery] = field(default_factory=list)

    @property
    def reply_to(self) -> str:
        return wire.reply_key(self.identity, self.session.id)

    def ask(self, type_name: str, body: bytes, level: str = "lookup", **changes: object) -> str:
        """Send an ask; its message id. ``changes`` are of its properties."""
        message_id = secrets.token_hex(8)
        me = str(self.identity)
        props = Properties(
            type=type_name, message_id=message_id, correlation_id=message_id, reply_to=self.reply_to, app_id=me, user_id=me, expiration=5000
        )
        self.line.publish(wire.ASKS, wire.ask_key(level, type_name), body, props._replace(**changes))  # type: ignore[arg-type]  # by name
        return message_id

    def tell(self, type_name: str, body: bytes, **changes: object) -> str:
        """Send a tell to whoever listens to its type."""
        message_id = secrets.token_hex(8)
        me = str(self.identity)
        props = Properties(type=type_name, message_id=message_id, correlation_id=message_id, app_id=me, user_id=me, persistent=True)
        self.line.publish(wire.TELLS, wire.all_key(type_name), body, props._replace(**changes))  # type: ignore[arg-type]  # by name
        return message_id

    def reply_of(self, message_id: str) -> Delivery | None:
        """The reply to this ask, if one came."""
        return next((one for one in self.replies if one.correlation_id == message_id), None)


@asynccontextmanager
async def raw(runtimes: Runtimes, identity: str, tells: tuple[str, ...] = ()) -> AsyncIterator[Raw]:
    """A session under this identity, whose rights are those of a module that tells ``tells``."""
    who = Identity.parse(identity)
    await runtimes.login(who, Manifest(module=who.module, version="0.raw", command=("raw",), tells=tells))
    session = await open_session(broker_at(runtimes, identity), identity)
    try:
        one = Raw(who, session, await session.wire())
        queue = wire.replies_queue(who, session.id)
        await session.declare_queue(queue, exclusive=True)
        await session.bind(queue, wire.REPLIES, one.reply_to)
        await one.line.consume(queue, one.replies.append, no_ack=True)
        yield one
    finally:
        await session.close()


async def parked(runtimes: Runtimes, identity: str, count: int, within: float = 10.0) -> list[Delivery]:
    """What stands in the parked queue of an identity, once it is ``count`` tells; all of it stays there."""
    session = await open_session(broker_at(runtimes, identity), identity)
    try:
        found: list[Delivery] = []
        line = await session.wire()
        await line.consume(wire.parked_queue(identity), found.append)
        await until(lambda: len(found) >= count, f"{count} tells are parked", within=within)
        assert len(found) == count, f"{len(found)} are parked: {[one.headers for one in found]}"
        return found
    finally:
        await session.close()


async def standing_in(runtimes: Runtimes, identity: str, queue: str) -> int:
    """How many messages stand in a queue of an identity at this moment, by the broker's own count: what its management API lists lags."""
    session = await open_session(broker_at(runtimes, identity), identity)
    try:
        counted = await session._topology.ask(commands.Queue.Declare(queue=queue, passive=True), repr(queue))
        return int(counted.message_count)
    finally:
        await session.close()


def broker_at(runtimes: Runtimes, identity: str) -> BrokerAt:
    """Where the broker is, for a login that has been made."""
    return BrokerAt(
        addresses=(("127.0.0.1", runtimes.port or runtimes.broker.ports.amqps),),
        name=runtimes.broker.name,
        vhost=runtimes.vhost,
        heartbeat=runtimes.heartbeat,
        ca_file=None,
        ca_pin=runtimes.broker.ca.pin,
        credentials=lambda: read_credentials(runtimes.directory / "credentials" / identity),
    )
