"""Acting on parked tells by an operator's order: look at them, replay one, drop one. One act at a time, and nothing is kept between acts.

An act fetches from the parked queue until it has seen what it wants, and gives back what it does not settle. The broker counts whoever
holds a message of the queue, so an act begins only when nobody does: else what is held elsewhere (by a session that was cut a moment ago)
would look as if it were not there. In the same way an act is reported only once the broker has settled it.

A replay is one more try under the rules of the first: the same handler, told by the one who told it. That is believed of what this
identity itself has parked, by the login that the broker validated; what another has put there can be looked at and dropped, never
handled. A replay that fails is parked anew before the old copy goes, so that a cut leaves two copies and never none.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import structlog

from mesh_runtime.asking.scope import Scope
from mesh_runtime.broker import Delivery, Getter, NotRouted, OutcomeUnknown, PublishRefused, Session, SessionLost, TooLarge
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.outcomes import Refused
from mesh_runtime.contracts.parking import ParkedAct, ParkedShown, ParkedTell
from mesh_runtime.logging import mask_text
from mesh_runtime.startup import RuntimeState, StageFault
from mesh_runtime.telling.listening import PARK_DEADLINE, Failed, Listener
from mesh_runtime.telling.parking import now, park

log = structlog.stdlib.get_logger(__name__)

#: Parked tells that one act looks at.
MOST_LOOKED_AT = 1000
#: Bytes of an answer's rows, well below what a message may hold.
MOST_SHOWN = 2 * 1024 * 1024
#: Bytes of a body that are shown; and beyond them, so that a secret at the edge is known whole.
BODY_SHOWN, BODY_BEYOND = 64 * 1024, 16 * 1024
#: Seconds in which others must have let go of the queue, and in which the broker must have settled what was settled here; between looks.
FREE_WITHIN, FREE_GAP = 5.0, 0.02
_LARGEST_COUNT = 2**31
#: Of its time an act looks for so long, and a handler is given so much; what is left is for settling and answering.
LOOKING_SHARE, HANDLING_SHARE = 0.5, 0.7


class _NotDone(Exception):
    """The act will not be done, and why."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.why)
        self.refused = refused


class Unparking:
    """Acts on the parked tells of one runtime."""

    def __init__(self, me: str, listener: Listener, state: RuntimeState) -> None:
        self._me = me
        self._queue = wire.parked_queue(me)
        self._listener = listener
        self._state = state
        self._turn = asyncio.Lock()
        self._doing = ""

    async def act(self, ask: ParkedAct, scope: Scope) -> ParkedShown | Refused:
        """One act of ``scope.sender``, within the ask's budget."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wire.DEFAULT_BUDGET if scope.deadline is None else scope.deadline
        try:
            async with self._alone(deadline), self._getter() as (session, getter):
                self._doing = f"{ask.act} {ask.message} by {scope.sender}".replace("  ", " ")
                if ask.act == "list":
                    return await self._listed(getter, deadline)
                delivery = await self._found(getter, ask.message, deadline)
                row = row_of(delivery, self._me)
                if ask.act == "show":
                    text = delivery.body[: BODY_SHOWN + BODY_BEYOND].decode(errors="replace")
                    cut = len(delivery.body) > BODY_SHOWN
                    return ParkedShown(act="show", rows=(row,), body=mask_text(text)[:BODY_SHOWN], cut=cut)
                if ask.act == "drop":
                    return await self._dropped(session, getter, delivery, row, scope.sender)
                return await self._replayed(session, getter, delivery, row, scope.sender, deadline)
        except _NotDone as not_done:
            return not_done.refused
        except StageFault as fault:
            return Refused(code="not-readable", why=f"{self._queue} cannot be looked at: {fault.cause.text}", again=True)
        except SessionLost as lost:
            return Refused(code="session-lost", why=f"the session of {self._me} was lost meanwhile: {lost}", again=True)

    # ------------------------------------------------------------------------------------------------ the queue

    @asynccontextmanager
    async def _alone(self, deadline: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout_at(_part_of(deadline, LOOKING_SHARE)):
                await self._turn.acquire()
        except TimeoutError:
            raise _NotDone(
                Refused(code="busy", why=f"{self._me} does another act on its parked tells: {self._doing}", again=True)
            ) from None
        try:
            yield
        finally:
            self._turn.release()

    @asynccontextmanager
    async def _getter(self) -> AsyncIterator[tuple[Session, Getter]]:
        """A channel on the queue while nobody else holds anything of it. What is not settled goes back at the end."""
        session = self._listener.session
        if session is None:
            raise _NotDone(Refused(code="session-lost", why=f"{self._me} has no session with the broker now", again=True))
        if not await self._free(session):
            words = f"parked tells of {self._me} are held by another session of it: the broker takes them back when it sees that it is lost"
            raise _NotDone(Refused(code="held", why=words, again=True))
        getter = await session.getter()
        try:
            yield session, getter
        finally:
            getter.forget()

    async def _free(self, session: Session) -> bool:
        """Whether nobody holds a message of the queue; waits for it. A quorum queue counts each message that is held as a consumer."""
        loop = asyncio.get_running_loop()
        until = loop.time() + FREE_WITHIN
        while await session.consumer_count(self._queue):
            if loop.time() > until:
                return False
            await asyncio.sleep(FREE_GAP)
        return True

    async def _settled(self, session: Session, getter: Getter, else_: str) -> None:
        """Return once the broker has settled all that was settled here. The channel must still be open then, or it went back instead.

        ``else_`` says what is known if it does not confirm that in time.
        """
        try:
            settled = await self._free(session) and getter.over is None
        except StageFault:
            settled = False
        if not settled:
            raise _NotDone(Refused(code="unsettled", why=f"{else_}; the broker did not confirm it in time: look again", again=True))

    async def _found(self, getter: Getter, wanted: str, deadline: float) -> Delivery:
        """The tell of this id; all others are given back."""
        until = _part_of(deadline, LOOKING_SHARE)
        passed: list[int] = []
        found = None
        while (delivery := await self._next(getter, len(passed), until)) is not None:
            if id_of(delivery, self._me) == wanted:
                found = delivery
                break
            passed.append(delivery.delivery_tag)
        for tag in passed:
            getter.nack(tag)
        if found is not None:
            return found
        where = f"among the first {len(passed)} parked tells" if getter.left else "parked"
        raise _NotDone(Refused(code="no-such-tell", why=f"{self._me} has no tell {wanted!r} {where}"))

    async def _next(self, getter: Getter, seen: int, until: float) -> Delivery | None:
        """The next parked tell, as far as one act looks; what is not looked at is counted in ``getter.left``."""
        if seen >= MOST_LOOKED_AT or (seen and asyncio.get_running_loop().time() > until):
            return None
        return await getter.get(self._queue)

    # ------------------------------------------------------------------------------------------------ the acts

    async def _listed(self, getter: Getter, deadline: float) -> ParkedShown:
        until = _part_of(deadline, LOOKING_SHARE)
        rows: list[ParkedTell] = []
        size = 0
        while (delivery := await self._next(getter, len(rows), until)) is not None:
            rows.append(row_of(delivery, self._me))
            size += len(rows[-1].model_dump_json().encode())
            if size > MOST_SHOWN:
                break
        return ParkedShown(act="list", rows=tuple(sorted(rows, key=lambda row: (row.last, row.id))), more=getter.left)

    async def _dropped(self, session: Session, getter: Getter, delivery: Delivery, row: ParkedTell, by: str) -> ParkedShown:
        getter.ack(delivery.delivery_tag)
        self._state.count("tells-dropped")
        log.warning("a parked tell is dropped", by=by, id=row.id, told_by=row.sender, type=row.type, message_id=row.message_id)
        await self._settled(session, getter, "it was told to drop it")
        return ParkedShown(act="drop", rows=(row,))

    async def _replayed(
        self, session: Session, getter: Getter, delivery: Delivery, row: ParkedTell, by: str, deadline: float
    ) -> ParkedShown:
        if row.put_by:
            words = f"{row.put_by} put it there, and no parking: who told it is not known, so it can only be dropped"
            raise _NotDone(Refused(code="foreign", why=words))
        told = replace(delivery, user_id=delivery.headers[wire.PARK_SENDER], headers=_without_marks(delivery))
        log.info("a parked tell is replayed", by=by, id=row.id, told_by=row.sender, type=row.type, message_id=row.message_id)
        loop = asyncio.get_running_loop()
        within = min(self._listener.hold_limit, (deadline - loop.time()) * HANDLING_SHARE)
        with structlog.contextvars.bound_contextvars(
            correlation_id=told.correlation_id, message_id=told.message_id, sender=told.user_id, tell=told.type
        ):
            failed = await self._listener.tried(told, loop.time() + within, within)
        if failed is not None:
            return await self._parked_again(session, getter, delivery, told, row, failed)
        getter.ack(delivery.delivery_tag)
        self._state.count("tells-replayed")
        log.info("a parked tell was handled", by=by, id=row.id)
        await self._settled(session, getter, "it was handled, and is no longer parked as soon as the broker says so")
        return ParkedShown(act="replay", rows=(row,))

    async def _parked_again(
        self, session: Session, getter: Getter, delivery: Delivery, told: Delivery, row: ParkedTell, failed: Failed
    ) -> ParkedShown:
        log.error("a replayed tell stays parked", id=row.id, reason=failed.reason)
        parking = self._listener.parking
        try:
            if parking is None:
                raise SessionLost("the session is over")
            await park(parking, self._me, told, failed.reason, row.count + 1, row.first or now(), PARK_DEADLINE)
        except (NotRouted, PublishRefused, OutcomeUnknown, TooLarge, SessionLost) as unwritten:
            log.error("the new reason of a parked tell could not be written", id=row.id, error=str(unwritten))
            return ParkedShown(act="replay", rows=(row,), failed=failed.reason)
        getter.ack(delivery.delivery_tag)
        await self._settled(session, getter, f"it failed again and is parked anew ({failed.reason}), perhaps beside its old copy")
        again = row.model_copy(update={"reason": mask_text(failed.reason), "count": row.count + 1, "last": now()})
        return ParkedShown(act="replay", rows=(again,), failed=failed.reason)


def _part_of(deadline: float, share: float) -> float:
    """The loop's time at which this share of what is left until ``deadline`` will be over."""
    now = asyncio.get_running_loop().time()
    return now + (deadline - now) * share


def row_of(delivery: Delivery, me: str) -> ParkedTell:
    """What a person is shown of a parked tell. Any text in it may be anybody's: secrets are masked."""
    by_parking = _sender_of(delivery, me) is not None
    headers = delivery.headers if by_parking else {}

    def text(name: str) -> str:
        value = headers.get(name, "")
        return mask_text(value) if isinstance(value, str) else ""

    count = headers.get(wire.PARK_COUNT, 0)
    return ParkedTell(
        id=id_of(delivery, me),
        type=mask_text(delivery.type),
        message_id=mask_text(delivery.message_id),
        sender=text(wire.PARK_SENDER),
        reason=text(wire.PARK_REASON),
        count=min(count, _LARGEST_COUNT) if isinstance(count, int) else 0,
        first=text(wire.PARK_FIRST),
        last=text(wire.PARK_LAST),
        size=len(delivery.body),
        put_by="" if by_parking else delivery.user_id or "a login that the broker did not validate",
    )


def id_of(delivery: Delivery, me: str) -> str:
    """Sixteen hex digits of who told it, its type, its message id and its body: the same for every copy, whatever became of it since."""
    digest = hashlib.sha256()
    for part in (delivery.user_id, _sender_of(delivery, me) or "", delivery.type, delivery.message_id):
        data = part.encode(errors="replace")
        digest.update(len(data).to_bytes(8, "big") + data)
    digest.update(delivery.body)
    return digest.hexdigest()[:16]


def _sender_of(delivery: Delivery, me: str) -> str | None:
    """Who told it, if ``me`` has parked it: its own login and the mark, which nobody else can bring together. The broker may carry other
    messages of ``me`` here by somebody's dead-lettering; those bear no mark."""
    sender = delivery.headers.get(wire.PARK_SENDER)
    return sender if delivery.user_id == me and isinstance(sender, str) else None


def _without_marks(delivery: Delivery) -> dict[str, object]:
    return {name: value for name, value in delivery.headers.items() if not name.startswith(wire.PARKS)}
