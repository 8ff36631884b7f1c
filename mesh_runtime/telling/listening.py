"""Receiving tells: each is settled exactly once, by this code and never by an author's: acknowledged once handled, parked, or given back.

A handler that raises is tried again in this process, a few times with growing gaps, before its tell is parked; so a database that is
away for a moment costs no message. All tries together have one limit, below the broker's own. A handler that is cancelled, because the
session ended or the runtime stops, gives its tell back. What is not told by who may tell it is parked unread, and so is a tell that came
again and again and was never settled: the broker would drop it in the end without a word.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import ValidationError

from mesh_runtime.asking.scope import Scope, carried, scoped
from mesh_runtime.asking.words import complaint_of, words_of
from mesh_runtime.broker import (
    ChannelLost,
    ConfirmedChannel,
    Delivery,
    NotRouted,
    OutcomeUnknown,
    PublishRefused,
    Session,
    SessionLost,
    TooLarge,
)
from mesh_runtime.contracts.base import Tell
from mesh_runtime.contracts.identity import BadName, Identity
from mesh_runtime.contracts.rights import DELIVERY_LIMIT
from mesh_runtime.startup import RuntimeState
from mesh_runtime.telling.parking import now, park

log = structlog.stdlib.get_logger(__name__)

#: Tells at work or delivered ahead, at once.
PREFETCH = 256
#: Gaps before a raising handler is tried again, in seconds; after the last try its tell is parked.
RETRY_GAPS = (0.1, 0.4, 1.5)
#: Seconds that handling may hold one tell, all tries together: well below the broker's own limit of 30 minutes (``consumer_timeout``).
HOLD_LIMIT = 600.0
#: Deliveries in vain after which a tell is parked, well below the policy's limit, at which the broker drops it.
MOST_DELIVERIES = DELIVERY_LIMIT // 2
#: Seconds that parking waits for the broker's word, and between tries.
PARK_DEADLINE = 10.0
PARK_GAP = 1.0


@dataclass(frozen=True, slots=True)
class Told:
    """How one type of tell is handled. Who may tell it stands in its contract."""

    tell: type[Tell]
    handle: Callable[[Any, Scope], Awaitable[None]]
    name: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A try that did not handle its tell: why, and whether another try is without hope."""

    reason: str
    hopeless: bool


class _Hopeless(Exception):
    """A tell that no retry mends: it cannot be decoded, nobody here handles it, its sender may not tell it, or its time is over."""


class Listener:
    """Handles tells on behalf of one runtime. Lives as long as the runtime; sessions are attached and detached."""

    def __init__(self, identity: Identity, told: list[Told], state: RuntimeState, hold_limit: float = HOLD_LIMIT) -> None:
        self._me = str(identity)
        self._state = state
        self._told = {one.tell.type_name(): one for one in told}
        self._hold_limit = hold_limit
        self.parking: ConfirmedChannel | None = None
        """What is parked goes over this channel; none while there is no session."""
        self.session: Session | None = None
        """The session that it listens in."""
        self._give_up: Callable[[str], None] = lambda _: None
        self._at_work: set[asyncio.Task[None]] = set()

    @property
    def listens(self) -> bool:
        """Whether this runtime is told anything at all."""
        return bool(self._told)

    @property
    def tells(self) -> tuple[type[Tell], ...]:
        """What it is told."""
        return tuple(one.tell for one in self._told.values())

    @property
    def hold_limit(self) -> float:
        """Seconds that handling may hold one tell."""
        return self._hold_limit

    def attach(self, session: Session, parking: ConfirmedChannel, give_up: Callable[[str], None]) -> None:
        """Park over ``parking`` from now on. What comes is settled where it came from. ``give_up`` ends the session, with the reason."""
        self.session, self.parking, self._give_up = session, parking, give_up

    def detach(self) -> None:
        """The session is over: the broker will deliver again whatever was not acknowledged, so its handlers are told to stop."""
        self.session = self.parking = None
        self._state.degrade("parking", None)
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
        with structlog.contextvars.bound_contextvars(
            correlation_id=delivery.correlation_id, message_id=delivery.message_id, sender=delivery.user_id, tell=delivery.type
        ):
            try:
                await self._handled_or_parked(delivery)
            except asyncio.CancelledError:
                self._give_back(delivery)
                raise
            self._settle(delivery)

    async def _handled_or_parked(self, delivery: Delivery) -> None:
        first, tried = now(), 0
        before = _deliveries_before(delivery)
        limit = asyncio.get_running_loop().time() + self._hold_limit
        if before >= MOST_DELIVERIES:
            hopeless = _Hopeless(f"never-settled: it came {before + 1} times, and no receiver lived to settle it")
            return await self._put_aside(delivery, str(hopeless), before + 1, first)
        while True:
            tried += 1
            failed = await self.tried(delivery, limit, self._hold_limit, tried)
            if failed is None:
                return None
            if failed.hopeless or tried > len(RETRY_GAPS):
                return await self._put_aside(delivery, failed.reason, before + tried, first)
            await asyncio.sleep(RETRY_GAPS[tried - 1])

    async def tried(self, delivery: Delivery, limit: float, within: float, tried: int = 1) -> Failed | None:
        """Handle it once, as told by its ``user_id``: None if its handler returned. Settles nothing.

        ``limit`` is the loop's time at which the handler is cut, ``within`` the seconds that it had. Raises CancelledError if the caller
        is cancelled.
        """
        try:
            await self._handled(delivery, limit, within)
        except _Hopeless as hopeless:
            return Failed(str(hopeless), hopeless=True)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return Failed(self._raised(delivery, error, tried), hopeless=False)
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - the message boundary: an author's sys.exit() must not end the process either
            return Failed(self._raised(delivery, error, tried), hopeless=False)
        return None

    def _raised(self, delivery: Delivery, error: BaseException, tried: int) -> str:
        self._state.count("handlers-raised")
        told, words = self._told.get(delivery.type), words_of(error)
        name = told.name if told is not None else "?"
        log.error("a handler of tells raised", handler=name, error=words, tried=tried, exc_info=error)
        return f"raised: {name}: {words}"

    async def _handled(self, delivery: Delivery, limit: float, within: float) -> None:
        told = self._told.get(delivery.type)
        if told is None:
            raise _Hopeless(f"not-handled: nobody here is told {delivery.type!r}")
        if not _may_tell(delivery.user_id, told.tell):
            who = delivery.user_id or "a login that the broker did not validate"
            raise _Hopeless(f"not-authorised: {told.tell.told_by or 'a known login'} tells {delivery.type}, not {who}")
        if delivery.malformed:
            raise _Hopeless(f"malformed: {delivery.malformed}")
        try:
            tell = told.tell.model_validate_json(delivery.body)
        except ValidationError as malformed:
            raise _Hopeless(f"malformed: {complaint_of(malformed)}") from None
        scope = Scope(what=told.name, correlation=carried(delivery.correlation_id), sender=delivery.user_id)
        hold = asyncio.timeout_at(limit)
        with scoped(scope):
            try:
                async with hold:
                    await told.handle(tell, scope)
            except TimeoutError:
                if not hold.expired():
                    raise
                self._state.count("handlers-out-of-time")
                words = f"{told.name} held its tell for more than {within:g} s"
                log.error("a handler of tells was cut at its limit", handler=told.name, why=words)
                raise _Hopeless(f"time-out: {words}") from None

    async def _put_aside(self, delivery: Delivery, reason: str, tried: int, first: str) -> None:
        self._state.count("tells-parked")
        log.error("a tell is parked", reason=reason, tried=tried)
        while (parking := self.parking) is not None:
            try:
                await park(parking, self._me, delivery, reason, tried, first, PARK_DEADLINE)
                return self._state.degrade("parking", None)
            except (NotRouted, PublishRefused, OutcomeUnknown, TooLarge, SessionLost, ChannelLost) as failed:
                log.error("a tell could not be parked yet", error=str(failed))
                self._state.degrade("parking", f"a tell could not be parked yet: {failed}")
                gone = isinstance(failed, NotRouted)
            await asyncio.sleep(PARK_GAP)
            if gone and parking is self.parking:  # the queue was deleted under us: the next session makes it again
                self._give_up("its parked queue is gone")
        raise asyncio.CancelledError("the session ended before a tell was parked")

    def _settle(self, delivery: Delivery) -> None:
        try:
            delivery.consumer.ack(delivery.delivery_tag)
        except (SessionLost, ChannelLost):
            self._state.count("acks-on-a-lost-session")

    def _give_back(self, delivery: Delivery) -> None:
        try:
            delivery.consumer.nack(delivery.delivery_tag, requeue=True)
        except (SessionLost, ChannelLost):
            self._state.count("acks-on-a-lost-session")


def _may_tell(login: str, tell: type[Tell]) -> bool:
    """Judged by the login that the broker validated; a tell without one is nobody's."""
    try:
        module = Identity.parse(login).module
    except BadName:
        return False
    return tell.told_by in ("", module)


def _deliveries_before(delivery: Delivery) -> int:
    """How often the broker has delivered it before, by its own count (quorum queues; RabbitMQ guide *Quorum Queues*)."""
    count = delivery.headers.get("x-delivery-count", 0) if delivery.redelivered else 0
    return count if isinstance(count, int) else 0
