"""*responder*: an answerer on a real broker, under an identity of its own, that does what a test tells it: found, absent, refused, error,
late, malformed, never, twice, or nobody there.

It holds a plain session and none of the library's answering parts, so it can do what a sound runtime never does. It keeps every ask that
arrived, and what the broker says of its replies.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from mesh_runtime.broker import BrokerAt, Delivery, Properties, Returned, Session, Wire, open_session
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.base import Ask
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.manifest import Manifest
from mesh_runtime.settings import read_credentials
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.stating import Answering, Failing, bodies_of, check_stated, stated_for

#: Seconds after the end of an ask's budget at which a late answer is sent.
LATE_BY = 0.3


@dataclass(frozen=True, slots=True)
class Asked:
    """One ask that arrived. ``at`` is loop time, ``budget`` what was left of it, in seconds."""

    ask: Ask[Any]
    sender: str
    correlation_id: str
    budget: float
    at: float


def responder_manifest(identity: Identity, asks: Mapping[type[Ask[Any]], Answering]) -> Manifest:
    """What its login must be allowed: to answer these asks, and what every runtime answers that is told something."""
    answered = tuple(sorted(f"{ask.level}:{ask.type_name()}" for ask in asks if not ask.addressed))
    told = ("something.1",) if any(ask.addressed for ask in asks) else ()
    return Manifest(module=identity.module, version="0.responder", command=("responder",), answers=answered, told=told)


class Responder:
    """Answers asks as stated, for as long as the context lasts. Its login must hold the rights of ``responder_manifest``."""

    def __init__(self, at: BrokerAt, identity: Identity, answers: Mapping[type[Ask[Any]], Answering]) -> None:
        """``answers`` also says what can be asked of it at all; raises CannotBe."""
        check_stated(answers, without=[Failing.SESSION_LOST])
        self.identity = identity
        self.asked: list[Asked] = []
        self.returned: list[Returned] = []
        """Replies that found nobody."""
        self._at = at
        self._answers = dict(answers)
        self._bound: set[type[Ask[Any]]] = set()
        self._session: Session | None = None
        self._line: Wire | None = None
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def session(self) -> Session:
        """Its session; raises RuntimeError outside the context."""
        if self._session is None:
            raise RuntimeError("a Responder is used with `async with`")
        return self._session

    async def say(self, ask: type[Ask[Any]], stated: Answering) -> None:
        """Answer this ask so from now on; ``Failing.NOBODY`` and its end have taken effect when this returns."""
        check_stated({ask: stated}, without=[Failing.SESSION_LOST])
        if ask not in self._answers:
            raise LookupError(f"{ask.__name__} is not among what this responder was made for")
        self._answers[ask] = stated
        await self._bind(ask)

    async def __aenter__(self) -> Self:
        self._session = session = await open_session(self._at, str(self.identity))
        try:
            self._line = line = await session.wire()
            line.on_returned = self.returned.append
            for level in sorted({ask.level for ask in self._answers}):
                queue = wire.asks_queue(self.identity, session.id, level)
                await session.declare_queue(queue, exclusive=True)
                await line.consume(queue, self._arrived, no_ack=True)
            for ask in self._answers:
                await self._bind(ask)
        except BaseException:  # also a cancellation: its session is not left behind
            await session.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        await self.session.close()

    async def _bind(self, ask: type[Ask[Any]]) -> None:
        queue = wire.asks_queue(self.identity, self.session.id, ask.level)
        kind = ask.type_name()
        key = wire.ask_to_key(ask.level, self.identity, kind) if ask.addressed else wire.ask_key(ask.level, kind)
        wanted = self._answers[ask] is not Failing.NOBODY
        if wanted and ask not in self._bound:
            await self.session.bind(queue, wire.ASKS, key)
            self._bound.add(ask)
        elif not wanted and ask in self._bound:
            await self.session.unbind(queue, wire.ASKS, key)
            self._bound.discard(ask)

    def _arrived(self, delivery: Delivery) -> None:
        kind = next((ask for ask in self._answers if ask.type_name() == delivery.type), None)
        if kind is None:
            return
        ask = kind.model_validate_json(delivery.body)
        budget = int(delivery.expiration or 0) / 1000
        self.asked.append(Asked(ask, delivery.user_id, delivery.correlation_id, budget, delivery.received))
        stated = stated_for(self._answers, ask)
        if stated is None or stated in (Failing.NOBODY, Failing.NEVER):
            return
        after = budget + LATE_BY if stated is Failing.LATE else 0.0
        sending = self._send(delivery, bodies_of(stated, str(self.identity)), after)
        task = asyncio.get_running_loop().create_task(sending, name=f"reply of {self.identity}")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, delivery: Delivery, bodies: list[bytes], after: float) -> None:
        await asyncio.sleep(after)
        assert self._line is not None
        for body in bodies:
            me = str(self.identity)
            props = Properties(
                type=delivery.type, message_id=secrets.token_hex(16), correlation_id=delivery.message_id, app_id=me, user_id=me
            )
            self._line.publish(wire.REPLIES, delivery.reply_to, body, props)


MakeResponder = Callable[[str, Mapping[type[Ask[Any]], Answering]], AbstractAsyncContextManager[Responder]]


def responders_of(runtimes: Runtimes) -> MakeResponder:
    """What makes responders in the virtual host of ``runtimes``; each gets a login of its own."""

    @asynccontextmanager
    async def responding(identity: str, answers: Mapping[type[Ask[Any]], Answering]) -> AsyncIterator[Responder]:
        who = Identity.parse(identity)
        credentials = await runtimes.login(who, responder_manifest(who, answers))
        at = BrokerAt(
            addresses=(("127.0.0.1", runtimes.port or runtimes.broker.ports.amqps),),
            name=runtimes.broker.name,
            vhost=runtimes.vhost,
            heartbeat=runtimes.heartbeat,
            ca_file=None,
            ca_pin=runtimes.broker.ca.pin,
            credentials=lambda: read_credentials(credentials),
        )
        async with Responder(at, who, answers) as one:
            yield one

    return responding
