"""What a session is made of for a runtime: its queues, its channels, its bindings; and their end.

Queues and bindings are this runtime's own; it declares no exchange and touches nobody else's. Asks are bound last, since *routable is
ready*, and unbound first when the runtime stops.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from mesh_runtime.asking import Answerer, Asker, Scope, scoped
from mesh_runtime.broker import ConfirmedChannel, Consumer, Delivery, Properties, Returned, Session, Wire
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.composing import Compose
from mesh_runtime.contracts.declaring import SignedDeclaration
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.outcomes import Unanswered
from mesh_runtime.startup import Stage, StageFault, waiting
from mesh_runtime.telling import Listener, Teller
from mesh_runtime.telling.listening import PREFETCH

if TYPE_CHECKING:
    from mesh_runtime.contracts.granting import Resource
    from mesh_runtime.grants.holding import Holder
    from mesh_runtime.grants.issuing import Issuer

log = structlog.stdlib.get_logger(__name__)

#: Seconds for the one who issues a resource to say so.
NAMED_WITHIN = 3.0

PROOF_TYPE = "proof.1"


@dataclass(slots=True)
class Parts:
    """The long-lived parts of a runtime that a session is attached to. ``provides`` is what its issuer issues."""

    identity: Identity
    asker: Asker
    answerer: Answerer
    teller: Teller
    listener: Listener
    holder: "Holder | None" = None
    issuer: "Issuer | None" = None
    provides: "type[Resource[Any]] | None" = None


class Wiring:
    """One session's queues, channels and bindings."""

    def __init__(self, session: Session, parts: Parts) -> None:
        self._session = session
        self._parts = parts
        self._me = parts.identity
        self._proof: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._main: Wire | None = None
        self._confirmed: ConfirmedChannel | None = None
        self._tells: tuple[Wire, Consumer] | None = None
        self._routable = False

    async def topology(self) -> None:
        """Declare the session's queues and consume those that carry answers and asks; attach the parts. Repeatable after a fault."""
        session, me = self._session, self._me
        replies = wire.replies_queue(me, session.id)
        await session.declare_queue(replies, exclusive=True)
        await session.bind(replies, wire.REPLIES, wire.reply_key(me, session.id))
        if self._parts.listener.listens:
            await self._durable_queues()
        for level in self._parts.answerer.levels:
            await session.declare_queue(wire.asks_queue(me, session.id, level), exclusive=True)
        if self._main is None:
            await self._attach(replies)

    async def _durable_queues(self) -> None:
        session, me = self._session, self._me
        tells, parked = wire.tells_queue(me), wire.parked_queue(me)
        await session.declare_queue(parked, quorum=True)
        await session.bind(parked, wire.TELLS, wire.parked_key(me))
        await session.declare_queue(tells, quorum=True)
        for exchange, key in self._tell_bindings():
            await session.bind(tells, exchange, key)

    async def _attach(self, replies: str) -> None:
        """Open the session's channels, all of them or none: half of them, tried again, would consume twice from one queue."""
        session, parts = self._session, self._parts
        try:
            main = await session.wire()
            main.on_returned = self._returned
            await main.consume(replies, self._replied, no_ack=True, on_cancelled=self._cancelled)
            lines: dict[str, Wire] = {}
            for name, level in parts.answerer.levels.items():
                line = lines[name] = await session.wire()
                queue = wire.asks_queue(self._me, session.id, name)
                await line.consume(queue, parts.answerer.receiver(name), prefetch=level.bound, on_cancelled=self._cancelled)
            confirmed = await session.confirmed()
        except BaseException:
            session.abort("its channels could not all be opened")
            raise
        parts.asker.attach(session, main)
        parts.answerer.attach(main, lines)
        parts.teller.attach(confirmed)
        self._main, self._confirmed = main, confirmed

    async def grants(self) -> None:
        """Be the one issuer of what is provided, as long as this session stands; then have in force what is granted. Repeatable."""
        if self._parts.provides is not None:
            await self._be_its_issuer(self._parts.provides)
        if self._parts.holder is not None:
            with scoped(Scope(what="grants")):
                await self._parts.holder.enter_all()

    async def _be_its_issuer(self, provided: "type[Resource[Any]]") -> None:
        queue = wire.provides_queue(provided.type_name())
        try:
            await self._session.declare_queue(queue, exclusive=True)
        except StageFault as fault:
            if fault.cause.code != "locked":
                raise
            raise await self._other_issuer(provided, queue) from None

    async def _other_issuer(self, provided: "type[Resource[Any]]", queue: str) -> StageFault:
        from mesh_runtime.runtime.granting import who_issues

        try:
            with scoped(Scope(what="grants")):
                holder = await who_issues(provided, self._parts.asker, NAMED_WITHIN)
        except Unanswered:
            words = "a session that does not say whose it is: of an issuer that is not ready yet, or one that was lost"
            return waiting(
                Stage.GRANTS, "other-issuer", f"{self._me} does not issue {provided.type_name()}: {queue} is held by {words}", queue
            )
        who = f"{holder} does" if holder != str(self._me) else "a second runtime of it does"
        words = f"{self._me} does not issue {provided.type_name()}: {who}, and a mesh has one issuer of a type of resource"
        return waiting(Stage.GRANTS, "other-issuer", words, holder)

    async def listen(self) -> None:
        """Take tells: after ``prepare``, since a tell's handler may need what that made ready; and alone: not beside another consumer,
        which is this identity a second time, or a lost session of it that the broker still believes in."""
        if not self._parts.listener.listens or self._tells is not None or self._confirmed is None:
            return
        queue = wire.tells_queue(self._me)
        if count := await self._session.consumer_count(queue):
            raise self._not_alone(queue, count)
        line = await self._session.wire()
        self._parts.listener.attach(self._session, self._confirmed, self._cancelled)
        try:
            self._tells = line, await line.consume(queue, self._parts.listener.receive, prefetch=PREFETCH, on_cancelled=self._cancelled)
        except BaseException:
            line.forget()  # the broker may yet grant what nobody waits for: a consumer in our own way, which reads nothing
            raise

    async def prove(self) -> None:
        """An own message has come back, and each durable queue has exactly this consumer; else a fault of the stage ``proof``."""
        main = self._main
        if main is None:
            raise waiting(Stage.PROOF, "not-attached", "the session's channels are not open")
        properties = Properties(type=PROOF_TYPE, message_id=f"{self._session.id}.proof", app_id=str(self._me), user_id=str(self._me))
        main.publish(wire.REPLIES, wire.reply_key(self._me, self._session.id), b"{}", properties)
        await asyncio.shield(self._proof)
        await self.listen()
        if self._tells is None:
            return
        queue = wire.tells_queue(self._me)
        if (count := await self._session.consumer_count(queue)) != 1:
            (line, _), self._tells = self._tells, None
            await line.close()
            raise self._not_alone(queue, count - 1)

    def _not_alone(self, queue: str, others: int) -> StageFault:
        words = f"{queue} has {others} other consumer(s): a second runtime of {self._me}, or a session that it lost"
        return waiting(Stage.PROOF, "other-consumer", words, queue)

    async def bind_asks(self) -> None:
        """Become routable: bind what is answered."""
        self._routable = True
        for queue, exchange, key in self._ask_bindings():
            await self._session.bind(queue, exchange, key)

    async def unbind_asks(self) -> None:
        """Stop being routable. Asks nothing of the broker if it never was: a stage that hangs must not hold up the end."""
        if not self._routable:
            return
        for queue, exchange, key in self._ask_bindings():
            await self._session.unbind(queue, exchange, key)

    async def stop_listening(self) -> None:
        """Take no more tells; those at work go on."""
        if self._tells is not None:
            line, consumer = self._tells
            await line.cancel(consumer)

    async def settle(self) -> None:
        """Close the channel on which tells are acknowledged: once the broker has answered that, it has every acknowledgement."""
        if self._tells is not None:
            await self._tells[0].close()

    def detach(self, why: str) -> None:
        """The session is over for all parts."""
        self._proof.cancel()
        self._parts.asker.detach(why)
        self._parts.answerer.detach()
        self._parts.teller.detach()
        self._parts.listener.detach()

    # ------------------------------------------------------------------------------------------------ bindings

    def _ask_bindings(self) -> Iterator[tuple[str, str, str]]:
        for ask in self._parts.answerer.asks:
            queue = wire.asks_queue(self._me, self._session.id, ask.level)
            if ask is Compose:
                yield queue, wire.CONTROL, wire.compose_key(self._me.module)
            elif ask.addressed:
                yield queue, wire.ASKS, wire.ask_to_key(ask.level, self._me, ask.type_name())
            else:
                yield queue, wire.ASKS, wire.ask_key(ask.level, ask.type_name())

    def _tell_bindings(self) -> Iterator[tuple[str, str]]:
        for tell in self._parts.listener.tells:
            if tell is SignedDeclaration:
                yield wire.CONTROL, wire.declare_key(self._me.machine)
            else:
                yield wire.TELLS, wire.all_key(tell.type_name())
                yield wire.TELLS, wire.to_key(self._me, tell.type_name())

    # ------------------------------------------------------------------------------------------------ what comes in

    def _replied(self, delivery: Delivery) -> None:
        if delivery.type == PROOF_TYPE:
            if delivery.user_id == str(self._me) and not self._proof.done():
                self._proof.set_result(None)
            return
        self._parts.asker.on_reply(delivery)

    def _returned(self, returned: Returned) -> None:
        if returned.exchange == wire.REPLIES:
            self._parts.answerer.on_returned(returned)
        else:
            self._parts.asker.on_returned(returned)

    def _cancelled(self, words: str) -> None:
        """The broker ended a consumer: the session no longer does its job, so it is over."""
        self._session.abort(words)
