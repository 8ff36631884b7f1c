"""Receiving tells: each is settled exactly once, by this code and never by an author's: acknowledged once handled, parked, or given back.

A handler that raises is tried again in this process, a few times with growing gaps, before its tell is parked; so a database that is
away for a moment costs no message. A handler that is cancelled, because the session ended or the runtime stops, gives its tell back.
What is not told by who may tell it is parked unread.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import ValidationError

from mesh_runtime.asking.scope import Scope, scoped
from mesh_runtime.broker import (
    ChannelLost,
    ConfirmedChannel,
    Delivery,
    NotRouted,
    OutcomeUnknown,
    PublishRefused,
    SessionLost,
    TooLarge,
    Wire,
)
from mesh_runtime.contracts.base import Tell
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.logging import mask_text
from mesh_runtime.startup import RuntimeState
from mesh_runtime.telling.parking import now, park

log = structlog.stdlib.get_logger(__name__)

#: Tells at work or delivered ahead, at once.
PREFETCH = 256
#: Gaps before a raising handler is tried again, in seconds; after the last try its tell is parked.
RETRY_GAPS = (0.1, 0.4, 1.5)
#: Seconds that a handler may hold one tell, well below the broker's own limit of 30 minutes (``consumer_timeout``).
HOLD_LIMIT = 600.0
#: Seconds that parking waits for the broker's word, and between tries.
PARK_DEADLINE = 10.0
PARK_GAP = 1.0


@dataclass(frozen=True, slots=True)
class Told:
    """How one type of tell is handled. Who may tell it stands in its contract."""

    tell: type[Tell]
    handle: Callable[[Any, Scope], Awaitable[None]]
    name: str


class _Unreadable(Exception):
    """A tell that no retry mends: it cannot be decoded, nobody here handles it, or its sender may not tell it."""


class Listener:
    """Handles tells on behalf of one runtime. Lives as long as the runtime; sessions are attached and detached."""

    def __init__(self, identity: Identity, told: list[Told], state: RuntimeState, hold_limit: float = HOLD_LIMIT) -> None:
        self._me = str(identity)
        self._state = state
        self._told = {one.tell.type_name(): one for one in told}
        self._hold_limit = hold_limit
        self._line: Wire | None = None
        self._parking: ConfirmedChannel | None = None
        self._at_work: set[asyncio.Task[None]] = set()

    @property
    def listens(self) -> bool:
        """Whether this runtime is told anything at all."""
        return bool(self._told)

    @property
    def tells(self) -> tuple[type[Tell], ...]:
        """What it is told."""
        return tuple(one.tell for one in self._told.values())

    def attach(self, line: Wire, parking: ConfirmedChannel) -> None:
        """Take tells from ``line`` and park over ``parking`` from now on."""
        self._line, self._parking = line, parking

    def detach(self) -> None:
        """The session is over: the broker will deliver again whatever was not acknowledged, so its handlers are told to stop."""
        self._line = self._parking = None
        for task in self._at_work:
            task.cancel("the session is over")

    async def finish(self, within: float) -> int:
        """Wait for tells at work, at most ``within`` seconds; returns how many were given back then."""
        if not self._at_work:
            return 0
        _, hanging = await asyncio.wait(self._at_work, timeout=within)
        for task in hanging:
            task.cancel("stopping")
        if hanging:
            await asyncio.wait(hanging, timeout=0.2)
        return len(hanging)

    def receive(self, delivery: Delivery) -> None:
        """The callback for deliveries of the tells queue."""
        task = asyncio.get_running_loop().create_task(self._settled(delivery), name=f"told {delivery.type}")
        self._at_work.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._at_work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("handling a tell failed outside its handler", error=repr(error), exc_info=error)

    # ------------------------------------------------------------------------------------------------ one tell

    async def _settled(self, delivery: Delivery) -> None:
        line = self._line
        with structlog.contextvars.bound_contextvars(
            correlation_id=delivery.correlation_id, message_id=delivery.message_id, sender=delivery.user_id, tell=delivery.type
        ):
            try:
                await self._handled_or_parked(delivery)
            except asyncio.CancelledError:
                self._give_back(line, delivery)
                raise
            self._settle(line, delivery)

    async def _handled_or_parked(self, delivery: Delivery) -> None:
        first = now()
        tried = 0
        while True:
            tried += 1
            try:
                await self._handled(delivery)
            except _Unreadable as unreadable:
                return await self._put_aside(delivery, str(unreadable), tried, first)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                words = "CancelledError"
            except BaseException as error:
                words = mask_text(f"{type(error).__name__}: {error}")
                log.error("a handler of tells raised", error=words, tried=tried, exc_info=error)
            else:
                return None
            self._state.count("handlers-raised")
            if tried > len(RETRY_GAPS):
                return await self._put_aside(delivery, f"its handler raised {words}", tried, first)
            await asyncio.sleep(RETRY_GAPS[tried - 1])

    async def _handled(self, delivery: Delivery) -> None:
        told = self._told.get(delivery.type)
        if told is None:
            raise _Unreadable(f"not-handled: nobody here is told {delivery.type!r}")
        module = delivery.user_id.partition("@")[0]
        if not delivery.user_id or (told.tell.told_by and module != told.tell.told_by):
            who = delivery.user_id or "a login that the broker did not validate"
            raise _Unreadable(f"not-authorised: {told.tell.told_by or 'a known login'} tells {delivery.type}, not {who}")
        try:
            tell = told.tell.model_validate_json(delivery.body)
        except ValidationError as malformed:
            first = malformed.errors(include_url=False, include_input=False, include_context=False)[0]
            raise _Unreadable(f"malformed: {'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}") from None
        scope = Scope(what=told.name, correlation=delivery.correlation_id, sender=delivery.user_id)
        limit = asyncio.timeout(self._hold_limit)
        with scoped(scope):
            try:
                async with limit:
                    await told.handle(tell, scope)
            except TimeoutError:
                if limit.expired():
                    raise TimeoutError(f"{told.name} held its tell for more than {self._hold_limit:g} s") from None
                raise

    async def _put_aside(self, delivery: Delivery, reason: str, tried: int, first: str) -> None:
        self._state.count("tells-parked")
        log.error("a tell is parked", reason=reason, tried=tried)
        while (parking := self._parking) is not None:
            try:
                return await park(parking, self._me, delivery, reason, tried, first, PARK_DEADLINE)
            except (NotRouted, PublishRefused, OutcomeUnknown, TooLarge, SessionLost, ChannelLost) as failed:
                log.error("a tell could not be parked yet", error=str(failed))
            await asyncio.sleep(PARK_GAP)
        raise asyncio.CancelledError("the session ended before a tell was parked")

    def _settle(self, line: Wire | None, delivery: Delivery) -> None:
        try:
            if line is not None:
                line.ack(delivery.delivery_tag)
        except (SessionLost, ChannelLost):
            self._state.count("acks-on-a-lost-session")

    def _give_back(self, line: Wire | None, delivery: Delivery) -> None:
        try:
            if line is not None:
                line.nack(delivery.delivery_tag, requeue=True)
        except (SessionLost, ChannelLost):
            self._state.count("acks-on-a-lost-session")
