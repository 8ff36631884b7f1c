"""Asking: one outcome for each ask, from the one who may give it, within its budget.

An ask is registered before it is sent. It ends by a reply that names this very ask, is of its kind and comes from an identity that may
answer (the broker-validated login, never a field of the message); by the broker's word that nobody is there; by its budget; or by the
end of the session. Whatever else arrives is counted and dropped, so a forged reply can neither answer an ask nor end it. An ask's id ends
in random digits that only its answerer sees: an answer that the broker carries on to another queue keeps the login of who gave it, so the
login alone does not say to which ask of whom it was given.
"""

import asyncio
import hashlib
import itertools
import secrets
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import structlog
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from mesh_runtime.asking.outcome import outcome_classes, reader_of
from mesh_runtime.asking.record import Attempt, QuestionRecord
from mesh_runtime.asking.scope import Scope, carried, current_scope, trace_header
from mesh_runtime.asking.words import complaint_of, words_of
from mesh_runtime.broker import ChannelLost, Delivery, Properties, Returned, Session, SessionLost, TooLarge, Wire
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.base import Ask
from mesh_runtime.contracts.composing import Compose, Machine, Rested
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.outcomes import Absent, LevelError, Missing, Reason, Refused, Unanswered
from mesh_runtime.contracts.rights import Rights
from mesh_runtime.startup import RuntimeState

log = structlog.stdlib.get_logger(__name__)

#: Asks of one level in flight at once from one runtime; more wait for a place, within their own budget.
MOST_IN_FLIGHT = 1024
#: Seconds. A day is longer than anybody waits here, and what AMQP's ``expiration`` is clamped to.
LONGEST_BUDGET = 86_400.0
#: Bytes waiting to be written to the broker above which new asks wait.
MOST_BACKLOG = 8 * 1024 * 1024


class _Cut(NamedTuple):
    """How an ask ended without an answer. The question's own words are put to it where it was asked: its author's code runs in them."""

    reason: Reason
    detail: str


@dataclass(slots=True)
class _Pending:
    """An ask in flight. ``expected`` holds the identities that must all answer, or is empty where the first rightful reply ends it."""

    ask: Ask[Any]
    module: str
    deadline: float
    ended: asyncio.Future[_Cut | Delivery | dict[str, Delivery]]
    expected: frozenset[str] = frozenset()
    replies: dict[str, Delivery] = field(default_factory=dict)


def label_of(ask: Ask[Any], of: Collection[str] = ()) -> str:
    """``store-reachable-from(machine='alpha')``: a question as people read it, bounded in length; ``of`` is whom all it is asked."""
    fields = ", ".join(f"{name}={getattr(ask, name)!r}" for name in type(ask).model_fields)
    text = f"{ask.contract}({fields})" + (f" of {', '.join(sorted(of))}" if of else "")
    return text if len(text) <= 400 else f"{text[:360]}… {hashlib.sha256(text.encode()).hexdigest()[:16]})"


def _key_of(ask: Ask[Any], of: Collection[str]) -> str:
    """What makes it the same question: type, content as it travels, and whom it is asked. Two questions may read alike to people."""
    try:
        content = ask.model_dump_json()
    except ValueError:  # it cannot travel; it was asked all the same
        content = repr(ask)
    return f"{ask.type_name()} {content} {','.join(sorted(of))}"


class Asker:
    """Asks on behalf of one runtime. Lives as long as the runtime; sessions are attached and detached."""

    def __init__(self, identity: Identity, rights: Rights, state: RuntimeState) -> None:
        self._me = str(identity)
        self._rights = rights
        self._state = state
        self._session: Session | None = None
        self._wire: Wire | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._numbers = itertools.count(1)
        self._pending: dict[str, _Pending] = {}
        #: A level has places of its own: its asks may wait here, in this very runtime, on asks of the levels below.
        self._places = {level: asyncio.Semaphore(MOST_IN_FLIGHT) for level in wire.LEVELS}
        self._allowed: set[tuple[str, str]] = set()
        self.composes: set[QuestionRecord] = set()

    def attach(self, session: Session, line: Wire) -> None:
        """Ask over this session from now on."""
        self._session, self._wire, self._loop = session, line, asyncio.get_running_loop()

    def detach(self, why: str) -> None:
        """The session is over: whatever was asked in it is unanswered."""
        self._session = self._wire = None
        for pending in list(self._pending.values()):
            self._end(pending, _Cut(Reason.SESSION_LOST, why))

    # ------------------------------------------------------------------------------------------------ asking

    def ask(self, *questions: Ask[Any], budget: float | None = None) -> Coroutine[Any, Any, Any]:
        """Ask one question, or several together; see ``ModuleRuntime.ask``. Entered into the record before this returns."""
        scope = current_scope()
        entries = [self._enter(question, scope) for question in questions]
        return self._on_own_loop(lambda: self._ask_all(questions, entries, scope, budget))

    def ask_each(self, question: Ask[Any], of: Collection[str], budget: float | None = None) -> Coroutine[Any, Any, dict[str, Any]]:
        """Ask one question of several identities; see ``ModuleRuntime.ask_each``."""
        scope = current_scope()
        attempts = self._enter(question, scope, of)
        expected = frozenset((of,) if isinstance(of, str) else of)
        for who in expected:
            module = Identity.parse(who).module
            if question.answered_by not in ("", module):
                raise ValueError(f"{who} cannot answer {question.contract}: the module {question.answered_by!r} alone does")
        if not expected:
            raise ValueError(f"{question.contract} is asked of nobody: name at least one identity")
        return self._on_own_loop(lambda: self._ask_each(question, attempts, scope, expected, budget))

    def compose(self, module: str, machine: Machine, budget: float | None = None) -> Coroutine[Any, Any, Any]:
        """Ask a module's composing runtime for its sections; for the holder of the controller's seat."""
        scope = current_scope()
        ask = Compose(machine=machine)
        return self._on_own_loop(lambda: self._ask_compose(module, ask, scope, budget))

    def _enter(self, question: Ask[Any], scope: Scope | None, of: Collection[str] = ()) -> tuple[Attempt, ...]:
        if scope is not None:
            records: Collection[QuestionRecord] = () if scope.record is None else (scope.record,)
        else:  # code that serves no handler now: which compose it works for cannot be known, so it is charged to all of them
            records = tuple(self.composes)
        if not records:
            return ()
        try:
            whom = frozenset((of,) if isinstance(of, str) else of)
            key, label = _key_of(question, whom), label_of(question, whom)
        except BaseException as unreadable:  # raised again; whoever catches it has learned nothing: a question without an answer
            name = type(question).__name__
            missing = Missing(question=name, reason=Reason.REFUSED, detail=f"it cannot be asked: {words_of(unreadable)}")
            for record in records:
                record.enter(f"{name} {id(question)}", name).failed(missing)
            raise
        return tuple(record.enter(key, label) for record in records)

    async def _on_own_loop(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        own = self._loop
        if own is None or asyncio.get_running_loop() is own:
            return await work()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), own))

    async def _ask_all(
        self, questions: tuple[Ask[Any], ...], attempts: list[tuple[Attempt, ...]], scope: Scope | None, budget: float | None
    ) -> Any:
        if len(questions) == 1:
            outcome = await self._ask_one(questions[0], attempts[0], scope, budget)
            if isinstance(outcome, Missing):
                raise Unanswered([outcome])
            return outcome
        both = zip(questions, attempts, strict=True)
        outcomes = await asyncio.gather(*(self._ask_one(*one, scope, budget) for one in both), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        if missing := [one for one in outcomes if isinstance(one, Missing)]:
            raise Unanswered(missing)
        return tuple(outcomes)

    async def _ask_one(self, ask: Ask[Any], attempts: tuple[Attempt, ...], scope: Scope | None, budget: float | None) -> Any:
        outcome = await self._settled(ask, attempts, self._send(ask, ask.answered_by, wire.ASKS, self._key(ask), scope, budget))
        if isinstance(outcome, Delivery):
            outcome = self._read(ask, outcome)
        if isinstance(outcome, Missing):
            for attempt in attempts:
                attempt.failed(outcome)
        else:
            _enter_outcomes(attempts, (outcome,))
        return outcome

    async def _ask_each(
        self, ask: Ask[Any], attempts: tuple[Attempt, ...], scope: Scope | None, of: frozenset[str], budget: float | None
    ) -> dict[str, Any]:
        sent = self._send(ask, ask.answered_by, wire.ASKS, self._key(ask, of), scope, budget, of)
        ended = await self._settled(ask, attempts, sent)
        replies = {who: self._read(ask, reply) for who, reply in ended.items()} if isinstance(ended, dict) else {}
        wrong = [f"{who}: {one.reason} ({one.detail})" for who, one in sorted(replies.items()) if isinstance(one, Missing)]
        wrong += [f"no answer from {who}" for who in sorted(of - replies.keys())]
        if isinstance(ended, Missing) or wrong:
            partial = Missing(question=label_of(ask, of), reason=Reason.PARTIAL, detail="; ".join(wrong))
            missing = ended.model_copy(update={"question": partial.question}) if isinstance(ended, Missing) else partial
            for attempt in attempts:
                attempt.failed(missing)
            raise Unanswered([missing])
        _enter_outcomes(attempts, replies.values())
        return replies

    async def _ask_compose(self, module: str, ask: Compose, scope: Scope | None, budget: float | None) -> Any:
        ended = await self._send(ask, module, wire.CONTROL, wire.compose_key(module), scope, budget)
        outcome = self._read(ask, ended) if isinstance(ended, Delivery) else ended
        if isinstance(outcome, Missing):
            raise Unanswered(
                [Missing(question=f"compose of {module} for {ask.machine.name}", reason=outcome.reason, detail=outcome.detail)]
            )
        return outcome

    async def _settled(self, ask: Ask[Any], attempts: tuple[Attempt, ...], sent: Awaitable[Any]) -> Any:
        """Await an ask; one that is cut short from outside, or cannot be made at all, is a question without an answer."""
        try:
            return await sent
        except BaseException as cut:  # raised again: a cancellation, or an ask that cannot be made
            if isinstance(cut, asyncio.CancelledError):
                reason, detail = Reason.TIME_OUT, "cut short by the one who asked"
            else:
                reason, detail = Reason.REFUSED, f"{type(cut).__name__}: {cut}"
            for attempt in attempts:
                attempt.failed(Missing(question=attempt.question.label, reason=reason, detail=detail))
            raise

    # ------------------------------------------------------------------------------------------------ one ask on the wire

    def _key(self, ask: Ask[Any], of: Collection[str] = ()) -> str:
        if not ask.addressed:
            return wire.ask_key(ask.level, ask.type_name())
        if len(of) != 1:
            raise ValueError(f"{ask.contract} is asked of one identity at a time: use ask_each")
        return wire.ask_to_key(ask.level, next(iter(of)), ask.type_name())

    async def _send(
        self,
        ask: Ask[Any],
        module: str,
        exchange: str,
        key: str,
        scope: Scope | None,
        budget: float | None,
        expected: frozenset[str] = frozenset(),
    ) -> Any:
        if scope is not None and not scope.allows(ask.level):
            raise LevelError(f"{scope.what} runs at level {scope.level} and asked {label_of(ask)} at level {ask.level}: ask below only")
        loop = asyncio.get_running_loop()
        now = loop.time()
        deadline = now + (wire.DEFAULT_BUDGET if budget is None else min(wire.checked_budget(budget), LONGEST_BUDGET))
        if scope is not None and scope.deadline is not None:
            deadline = min(deadline, now + (scope.deadline - now) * wire.NESTED_SHARE)
        if (exchange, key) not in self._allowed:
            if not self._rights.may_publish(exchange, key):
                return Missing(question=label_of(ask), reason=Reason.REFUSED, detail=f"{self._me} may not publish {key} to {exchange}")
            self._allowed.add((exchange, key))
        places = self._places[ask.level]
        if places.locked() or (self._session is not None and self._session.backlog > MOST_BACKLOG):
            if not await self._place_within(places, deadline):
                return Missing(question=label_of(ask), reason=Reason.TIME_OUT, detail="too many asks in flight from here")
        else:
            await places.acquire()
        try:
            return await self._flight(_Pending(ask, module, deadline, loop.create_future(), expected), exchange, key, scope, loop)
        finally:
            places.release()

    async def _place_within(self, places: asyncio.Semaphore, deadline: float) -> bool:
        try:
            async with asyncio.timeout_at(deadline):
                while self._session is not None and self._session.backlog > MOST_BACKLOG:  # noqa: ASYNC110 - a backlog has no event
                    await asyncio.sleep(0.01)
                await places.acquire()
        except TimeoutError:
            return False
        return True

    async def _flight(
        self, pending: _Pending, exchange: str, key: str, scope: Scope | None, loop: asyncio.AbstractEventLoop
    ) -> Missing | Delivery | dict[str, Delivery]:
        ask, session, line = pending.ask, self._session, self._wire
        left = pending.deadline - loop.time()
        if session is None or line is None:
            return Missing(question=label_of(ask), reason=Reason.SESSION_LOST, detail="no session with the broker now")
        if left <= 0:
            return Missing(question=label_of(ask), reason=Reason.TIME_OUT, detail="no budget was left to ask")
        number = f"{session.id}.{next(self._numbers)}"
        message_id = f"{number}.{secrets.token_hex(8)}"
        correlation, trace = (scope.correlation, scope.trace) if scope is not None else ("", "")
        properties = Properties(
            type=ask.type_name(),
            message_id=message_id,
            correlation_id=carried(correlation) or number,
            reply_to=wire.reply_key(self._me, session.id),
            app_id=self._me,
            user_id=self._me,
            expiration=max(1, int(left * 1000)),
            headers={wire.TRACE_HEADER: trace_header(trace)},
        )
        self._pending[message_id] = pending
        timer = loop.call_at(pending.deadline, self._expire, message_id)
        try:
            line.publish(exchange, key, ask.model_dump_json().encode(), properties)
            ended = await pending.ended
            return Missing(question=label_of(ask), reason=ended.reason, detail=ended.detail) if isinstance(ended, _Cut) else ended
        except (TooLarge, PydanticSerializationError) as unsendable:
            return Missing(question=label_of(ask), reason=Reason.REFUSED, detail=str(unsendable))
        except (SessionLost, ChannelLost) as lost:
            return Missing(question=label_of(ask), reason=Reason.SESSION_LOST, detail=str(lost))
        finally:
            timer.cancel()
            self._pending.pop(message_id, None)

    def _expire(self, message_id: str) -> None:
        pending = self._pending.get(message_id)
        if pending is None:
            return
        if pending.expected:
            self._end(pending, pending.replies)
        else:
            on = pending.module or "anybody"
            self._end(pending, _Cut(Reason.TIME_OUT, f"no answer from {on} in time"))

    def _end(self, pending: _Pending, how: _Cut | Delivery | dict[str, Delivery]) -> None:
        if not pending.ended.done():
            pending.ended.set_result(how)

    # ------------------------------------------------------------------------------------------------ what comes back

    def on_reply(self, reply: Delivery) -> None:
        """A message on the session's reply queue. Ends its ask if it is a rightful reply to it, else is counted and dropped."""
        pending = self._pending.get(reply.correlation_id)
        if pending is None or pending.ended.done():
            self._drop(reply, "late-replies", "no ask of this session waits for it any more")
        elif reply.type != pending.ask.type_name():
            self._drop(reply, "foreign-replies", f"it is of type {reply.type!r}, the ask of {pending.ask.type_name()!r}")
        elif not self._may_answer(reply.user_id, pending):
            self._drop(reply, "foreign-replies", f"{reply.user_id or 'nobody validated'} may not answer it")
        elif reply.received > pending.deadline and pending.expected:
            self._drop(reply, "late-replies", f"{reply.user_id} answered after the budget")
        elif reply.received > pending.deadline:
            late = f"{reply.user_id} answered {reply.received - pending.deadline:.3f} s after the budget"
            self._end(pending, _Cut(Reason.LATE, late))
        elif pending.expected:
            pending.replies.setdefault(reply.user_id, reply)
            if pending.expected <= pending.replies.keys():
                self._end(pending, pending.replies)
        else:
            self._end(pending, reply)

    def on_returned(self, returned: Returned) -> None:
        """The broker's word that nobody was there."""
        pending = self._pending.get(returned.message_id)
        if pending is not None:
            detail = f"nobody listens to {returned.routing_key} ({returned.reply_code} {returned.reply_text})"
            self._end(pending, _Cut(Reason.NOBODY, detail))

    def _may_answer(self, login: str, pending: _Pending) -> bool:
        if pending.expected:
            return login in pending.expected
        return bool(login) and (not pending.module or login.partition("@")[0] == pending.module)

    def _drop(self, reply: Delivery, count: str, why: str) -> None:
        self._state.count(count)
        log.info("a reply was dropped", correlation_id=reply.correlation_id, sender=reply.user_id, why=why)

    def _read(self, ask: Ask[Any], reply: Delivery) -> Any:
        try:
            outcome = reader_of(type(ask)).validate_json(reply.body)
        except ValidationError as malformed:
            detail = f"{reply.user_id} answered what is no outcome of this ask: {complaint_of(malformed)}"
            return Missing(question=label_of(ask), reason=Reason.MALFORMED, detail=detail)
        never = ask.level == "lookup" or (isinstance(outcome, Refused) and outcome.code in _NOT_THE_MODULES_WORD)
        if isinstance(outcome, Refused) and (never or Refused not in outcome_classes(type(ask))):
            reason = Reason.MALFORMED if outcome.code == "malformed" else Reason.REFUSED
            return Missing(question=label_of(ask), reason=reason, detail=f"{reply.user_id}: {outcome.code}: {outcome.why}")
        return outcome.model_copy(update={"by": reply.user_id}) if "by" in type(outcome).model_fields else outcome


#: Refusals that the answerer's library gives because the ask itself could not be handled: no outcome, whatever the contract allows.
_NOT_THE_MODULES_WORD = frozenset({"malformed", "no-handler", "too-large", "stopping", "interrupted", "not-authorised"})
#: Refusals that it gives because the handler failed: an outcome where the contract allows one, and no answer on which a compose may rest.
_HANDLER_FAILED = frozenset({"error", "time-out", "wrong-type"})


def _enter_outcomes(attempts: tuple[Attempt, ...], outcomes: Collection[Any]) -> None:
    failed = [one for one in outcomes if isinstance(one, Refused) and one.code in _HANDLER_FAILED]
    for attempt in attempts:
        if failed:
            detail = "; ".join(f"{one.by}: {one.code}: {one.why}" for one in failed)
            attempt.failed(Missing(question=attempt.question.label, reason=Reason.REFUSED, detail=detail))
        else:
            for outcome in outcomes:
                attempt.answered(_rested(attempt.question.label, outcome))


def _rested(label: str, outcome: Any) -> Rested:
    kind: Literal["found", "absent", "refused"] = "found"
    words = {"by", "revision"}
    if isinstance(outcome, Absent):
        kind = "absent"
    elif isinstance(outcome, Refused):
        kind = "refused"
        words |= {"why", "unanswered"}  # which may quote a time or a port: the same refusal has not moved
    fingerprint = hashlib.sha256(outcome.model_dump_json(exclude=words).encode()).hexdigest()
    by, revision = getattr(outcome, "by", ""), getattr(outcome, "revision", 0)
    return Rested(question=label, outcome=kind, by=by, revision=revision, fingerprint=fingerprint)
