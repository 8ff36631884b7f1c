"""Answering: one outcome for every ask that arrives, whatever its handler does, and bounds for each level.

An ask is acknowledged when it is accepted, not when it is done: it is stored nowhere, its reply is its confirmation, and no delivery is
held for the length of the work. Each level has its own queue and its own number of asks at work, so that a crowd of composes leaves
room for the lookups that they wait on. Decoding stands inside the guarded part; what cannot be decoded is answered ``malformed``.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from mesh_runtime.asking.outcome import complaint_about
from mesh_runtime.asking.scope import Scope, carried, scoped
from mesh_runtime.asking.words import complaint_of, words_of
from mesh_runtime.broker import ChannelLost, Delivery, Properties, Returned, SessionLost, TooLarge, Wire
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.base import Ask
from mesh_runtime.contracts.identity import BadName, Identity
from mesh_runtime.contracts.outcomes import Outcome, Refused
from mesh_runtime.contracts.rights import replies_to
from mesh_runtime.logging import mask_text
from mesh_runtime.startup import RuntimeState

log = structlog.stdlib.get_logger(__name__)

#: Asks at work at once, per level, unless the module says otherwise.
BOUNDS = {"tool": 8, "compose": 16, "provision": 16, "lookup": 64}

Handler = Callable[[Any, Scope], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Answer:
    """How one type of ask is answered. ``from_modules`` names who may ask it; empty: any login of the mesh."""

    ask: type[Ask[Any]]
    handle: Handler
    name: str
    from_modules: frozenset[str] = frozenset()


class Level:
    """The asks of one level: those at work, and those delivered that wait for a place."""

    def __init__(self, name: str, bound: int) -> None:
        self.name = name
        self.bound = bound
        self.at_work: set[asyncio.Task[None]] = set()
        self.waiting: deque[Delivery] = deque()
        self.line: Wire | None = None


class Answerer:
    """Answers on behalf of one runtime. Lives as long as the runtime; sessions are attached and detached."""

    def __init__(self, identity: Identity, answers: list[Answer], state: RuntimeState) -> None:
        self._me = str(identity)
        self._state = state
        self._answers = {answer.ask.type_name(): answer for answer in answers}
        levels = {answer.ask.level for answer in answers}
        self.levels: dict[str, Level] = {name: Level(name, BOUNDS[name]) for name in wire.LEVELS if name in levels}
        self._wire: Wire | None = None
        self._stopping = False
        self._numbers = itertools.count(1)

    @property
    def asks(self) -> tuple[type[Ask[Any]], ...]:
        """What it answers."""
        return tuple(answer.ask for answer in self._answers.values())

    def attach(self, line: Wire, level_lines: dict[str, Wire]) -> None:
        """Reply over ``line`` from now on; each level's asks come in over, and are acknowledged on, its own line."""
        self._wire = line
        for name, level in self.levels.items():
            level.line = level_lines[name]

    def detach(self) -> None:
        """The session is over: nobody can be answered any more, so handlers of its asks are told to stop."""
        self._wire = None
        for level in self.levels.values():
            level.line = None
            level.waiting.clear()
            for task in level.at_work:
                task.cancel("the session is over")

    async def finish(self, within: float) -> int:
        """Wait for asks at work, at most ``within`` seconds; returns how many were cut short then. Those that wait or come are refused."""
        self._stopping = True
        for level in self.levels.values():
            while level.waiting:
                self._turn_away(level, level.waiting.popleft())
        tasks = [task for level in self.levels.values() for task in level.at_work]
        if not tasks:
            return 0
        _, hanging = await asyncio.wait(tasks, timeout=within)
        for task in hanging:
            task.cancel("stopping")
        if hanging:
            await asyncio.wait(hanging, timeout=0.2)
        return len(hanging)

    # ------------------------------------------------------------------------------------------------ deliveries

    def receiver(self, name: str) -> Callable[[Delivery], None]:
        """The callback for deliveries of one level's queue."""
        level = self.levels[name]

        def receive(delivery: Delivery) -> None:
            if self._stopping:
                self._turn_away(level, delivery)
            elif len(level.at_work) < level.bound:
                self._accept(level, delivery)
            else:
                level.waiting.append(delivery)

        return receive

    def _turn_away(self, level: Level, delivery: Delivery) -> None:
        self._settle(level, delivery)
        self._reply(delivery, self._stopped())

    def _stopped(self) -> Refused:
        return Refused(code="stopping", why=f"{self._me} is stopping", again=True)

    def _cut(self) -> Refused:
        """What the asker is told of a handler that was cancelled, if there is a session to tell it by: perhaps the next one."""
        if self._stopping:
            return self._stopped()
        return Refused(code="interrupted", why=f"{self._me} lost its session while it was at it", again=True)

    def _accept(self, level: Level, delivery: Delivery) -> None:
        self._settle(level, delivery)
        task = asyncio.get_running_loop().create_task(self._answer(level, delivery), name=f"answer {delivery.type}")
        level.at_work.add(task)
        task.add_done_callback(lambda done: self._next(level, done))

    def _next(self, level: Level, done: asyncio.Task[None]) -> None:
        level.at_work.discard(done)
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("answering failed outside its handler", level=level.name, error=repr(error), exc_info=error)
        while level.waiting and len(level.at_work) < level.bound:
            self._accept(level, level.waiting.popleft())

    def _settle(self, level: Level, delivery: Delivery) -> None:
        if level.line is None:
            return
        try:
            level.line.ack(delivery.delivery_tag)
        except (SessionLost, ChannelLost):
            self._state.count("acks-on-a-lost-session")

    async def _answer(self, level: Level, delivery: Delivery) -> None:
        loop = asyncio.get_running_loop()
        deadline = delivery.received + _budget_of(delivery)
        if loop.time() >= deadline:
            self._state.count("asks-out-of-time")
            log.info(
                "an ask was out of time before its turn",
                type=delivery.type,
                sender=delivery.user_id,
                correlation_id=delivery.correlation_id,
            )
            return
        with structlog.contextvars.bound_contextvars(correlation_id=delivery.correlation_id, sender=delivery.user_id, ask=delivery.type):
            answer = self._authorised(level, delivery)
            if isinstance(answer, Refused):
                self._state.count("asks-refused")
                log.warning("an ask was refused before its handler", code=answer.code, why=answer.why)
                self._reply(delivery, answer)
                return
            scope = Scope(
                what=answer.name,
                level=answer.ask.level,
                deadline=deadline,
                correlation=carried(delivery.correlation_id),
                trace=_trace_of(delivery),
                sender=delivery.user_id,
            )
            with scoped(scope):
                body = await self._guarded(answer, delivery, scope)
            self._send(delivery, body)

    async def _guarded(self, answer: Answer, delivery: Delivery, scope: Scope) -> bytes:
        """The message boundary: whatever is raised while an ask is read, handled and its outcome written becomes a refusal, except a
        cancellation that is meant for this task. An author's code runs in all three: a contract may bring validators of its own."""
        task, limit = asyncio.current_task(), asyncio.timeout_at(scope.deadline)
        try:
            if delivery.malformed:
                return self._unreadable(f"{delivery.type}: {delivery.malformed}")
            async with limit:
                outcome = await answer.handle(_read(answer.ask, delivery.body), scope)
            return self._written(answer, outcome)
        except _Unsound as unsound:
            return self._unreadable(f"{delivery.type}: {unsound}")
        except TimeoutError as error:
            if not limit.expired():
                return _json(self._raised(answer, error))
            self._state.count("handlers-out-of-time")
            log.error("a handler did not end within its ask's budget", handler=answer.name)
            return _json(Refused(code="time-out", why=f"{answer.name} of {self._me} did not end within the budget", again=True))
        except asyncio.CancelledError as error:
            if task is None or not task.cancelling():
                return _json(self._raised(answer, error))
            if self._wire is None:
                raise
            return _json(self._cut())
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - the message boundary: an author's sys.exit() must not end the process either
            return _json(self._raised(answer, error))

    def _unreadable(self, why: str) -> bytes:
        self._state.count("asks-malformed")
        log.warning("an ask could not be read", why=why)
        return _json(Refused(code="malformed", why=why))

    def _written(self, answer: Answer, outcome: Outcome) -> bytes:
        complaint = complaint_about(answer.ask, outcome)
        if not complaint:
            try:
                return _json(outcome)
            except PydanticSerializationError as unwritable:
                complaint = f"what JSON cannot say: {unwritable}"
        wrong = f"{answer.name} returned {complaint}"
        log.error("a handler returned what its contract does not allow", handler=answer.name, why=wrong)
        self._state.count("handlers-raised")
        return _json(Refused(code="wrong-type", why=wrong))

    def _raised(self, answer: Answer, error: BaseException) -> Refused:
        self._state.count("handlers-raised")
        words = words_of(error)
        log.error("a handler raised", handler=answer.name, error=words, exc_info=error)
        return Refused(code="error", why=f"{answer.name} raised {words}", again=True)

    def _authorised(self, level: Level, delivery: Delivery) -> Answer | Refused:
        """Who answers this ask, or why nobody does: judged by the login that the broker validated."""
        if not delivery.user_id:
            return Refused(code="not-authorised", why="the ask carries no login validated by the broker")
        if not replies_to(delivery.user_id, delivery.reply_to):
            return Refused(code="not-authorised", why="its reply address is not the asker's own")
        answer = self._answers.get(delivery.type)
        if answer is None or answer.ask.level != level.name:
            return Refused(code="no-handler", why=f"{self._me} answers no {delivery.type!r} at level {level.name}")
        try:
            module = Identity.parse(delivery.user_id).module
        except BadName as bad:
            return Refused(code="not-authorised", why=str(bad))
        if answer.from_modules and module not in answer.from_modules:
            who = " or ".join(f"{name}@MACHINE" for name in sorted(answer.from_modules))
            return Refused(code="not-authorised", why=f"only {who} may ask {delivery.type}, not {delivery.user_id}")
        return answer

    # ------------------------------------------------------------------------------------------------ replies

    def _reply(self, delivery: Delivery, outcome: Outcome) -> None:
        self._send(delivery, _json(outcome))

    def _send(self, delivery: Delivery, body: bytes) -> None:
        if not replies_to(delivery.user_id, delivery.reply_to):  # to anywhere else is forbidden, and would cost the session
            return
        try:
            self._publish(delivery, body)
        except TooLarge as too_large:
            log.error("an answer is too large", type=delivery.type, why=str(too_large))
            self._publish(delivery, _json(Refused(code="too-large", why=str(too_large))))

    def _publish(self, delivery: Delivery, body: bytes) -> None:
        if self._wire is None:
            self._state.count("replies-on-a-lost-session")
            return
        properties = Properties(
            type=carried(delivery.type),
            message_id=f"{self._me}.{next(self._numbers)}",
            correlation_id=carried(delivery.message_id),
            app_id=self._me,
            user_id=self._me,
        )
        try:
            self._wire.publish(wire.REPLIES, carried(delivery.reply_to), body, properties)
        except (SessionLost, ChannelLost):
            self._state.count("replies-on-a-lost-session")

    def on_returned(self, returned: Returned) -> None:
        """A reply found nobody: its asker is gone. Said once; the ask will be made again if it still matters."""
        self._state.count("replies-to-nobody")
        log.info("an asker was gone before its reply", correlation_id=returned.correlation_id, type=returned.type)


class _Unsound(Exception):
    """An ask that cannot be read: what is wrong with it, and where."""


def _read(ask: type[Ask[Any]], body: bytes) -> Ask[Any]:
    try:
        return ask.model_validate_json(body)
    except ValidationError as malformed:
        raise _Unsound(complaint_of(malformed)) from None


def _json(outcome: Outcome) -> bytes:
    """The outcome as it travels. A refusal is words for people, and whoever wrote them may have quoted an error: they leave masked."""
    if isinstance(outcome, Refused):
        unanswered = tuple(
            one.model_copy(update={"question": mask_text(one.question), "detail": mask_text(one.detail)}) for one in outcome.unanswered
        )
        outcome = outcome.model_copy(update={"why": mask_text(outcome.why), "unanswered": unanswered})
    return outcome.model_dump_json().encode()


def _budget_of(delivery: Delivery) -> float:
    """Seconds that the asker gave. An ask without a readable budget gets the default one."""
    try:
        return int(delivery.expiration or "") / 1000
    except ValueError:
        return wire.DEFAULT_BUDGET


def _trace_of(delivery: Delivery) -> str:
    parts = str(delivery.headers.get(wire.TRACE_HEADER, "")).split("-")
    return parts[1] if len(parts) == 4 and len(parts[1]) == 32 else ""
