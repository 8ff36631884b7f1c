"""An issuer that says what the test states: on a plain session, under a login with all rights of a provisioner of things."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pydantic import SecretStr

from mesh_runtime.broker import Delivery, Properties, Wire
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.base import Tell
from mesh_runtime.contracts.granting import GrantAsk, GrantConfirmed, Granted, GrantRotated, ask_for
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.runtime import manifest_of
from mesh_runtime.testing.responder import Responder
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.stating import Answering
from mesh_runtime.trust.sealing import PublicKey, purpose_of
from tests.grants.parts import ONE, Account, Thing, ThingAccess
from tests.grants.runtimes.parts import MakerRuntime, Pool
from tests.raw import broker_at

ASK = ask_for(Thing)
SECRET = "planted-S3cr3t-xyzzy-41"


@dataclass(frozen=True)
class For:
    """For whom and what something is sealed; a test changes what is to be wrong."""

    consumer: str = "shop@alpha"
    by: str = "maker@alpha"
    body: bytes = b""


def sealed(ask: GrantAsk, key: PublicKey | None = None, sequence: int = 1, of: For | None = None) -> Granted:
    """The login ``login.<sequence>`` with SECRET, which the shared server knows from now on, sealed to ``key`` or to the ask's."""
    to, what = key or PublicKey.parse(ask.key), of or For()
    access = ThingAccess(at="server", user=f"login.{sequence}", password=SecretStr(SECRET))
    Pool.shared.accounts[access.user] = Account(SECRET, ONE.text, "shop")
    purpose = purpose_of("access", what.consumer, ONE.text, what.by, sequence)
    return Granted(sequence=sequence, key=str(to), sealed=to.seal(what.body or access.revealed(), purpose))


@dataclass
class StatingIssuer:
    """``confirmed`` are the confirmations that came, in order."""

    identity: Identity
    responder: Responder
    line: Wire
    confirmed: list[GrantConfirmed] = field(default_factory=list)

    async def say(self, stated: Answering) -> None:
        """Answer asks for the one thing so from now on."""
        await self.responder.say(ASK, stated)

    @property
    def asked(self) -> list[GrantAsk]:
        """The asks that came."""
        return [one.ask for one in self.responder.asked if isinstance(one.ask, GrantAsk)]

    @property
    def key(self) -> PublicKey:
        """The key with which it was asked last."""
        return PublicKey.parse(self.asked[-1].key)

    def rotated(self, sequence: int, key: PublicKey | None = None, of: For | None = None) -> GrantRotated:
        """A rotated grant, to the key with which it was asked last."""
        grant = sealed(self.asked[-1], key, sequence, of)
        return GrantRotated(resource=ONE.text, sequence=sequence, key=grant.key, sealed=grant.sealed)

    def tell(self, tell: Tell, to: str = "shop@alpha") -> None:
        """Tell one identity."""
        me = str(self.identity)
        number = secrets.token_hex(16)
        props = Properties(type=tell.type_name(), message_id=number, correlation_id=number, app_id=me, user_id=me, persistent=True)
        self.line.publish(wire.TELLS, wire.to_key(to, tell.type_name()), tell.model_dump_json().encode(), props)

    def _came(self, delivery: Delivery) -> None:
        self.confirmed.append(GrantConfirmed.model_validate_json(delivery.body))


@asynccontextmanager
async def issuing(runtimes: Runtimes, stated: Answering = sealed, identity: str = "maker@alpha") -> AsyncIterator[StatingIssuer]:
    """An issuer that answers asks for the one thing as stated."""
    who = Identity.parse(identity)
    await runtimes.login(who, manifest_of(MakerRuntime, "0.test").model_copy(update={"module": who.module}))
    async with Responder(broker_at(runtimes, identity), who, {ASK: stated}) as responder:
        one = StatingIssuer(who, responder, await responder.session.wire())
        queue = wire.tells_queue(who)
        await responder.session.declare_queue(queue, quorum=True)
        await responder.session.bind(queue, wire.TELLS, wire.to_key(who, GrantConfirmed.type_name()))
        await one.line.consume(queue, one._came, no_ack=True)
        yield one
