"""Climbing: the stages in their order, again and again, until the runtime is told to stop. Nothing outside the process ends it.

A session that is lost is over, and the stages are climbed anew; there is no second recovery beside this one. Faults after the login are
tried again on the session that stands; a session that ends meanwhile ends that too.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from mesh_runtime.asking import Scope, scoped
from mesh_runtime.broker import BrokerAt, Session, open_session
from mesh_runtime.logging import mask_text
from mesh_runtime.runtime.wiring import Parts, Wiring
from mesh_runtime.startup import PACES, Cause, Kind, RuntimeState, Stage, StageFault, climbing_waits, waiting
from mesh_runtime.tasks import attempt, not_exiting

log = structlog.stdlib.get_logger(__name__)

#: Seconds between two log lines about the same cause.
REPEAT_AFTER = 60.0


#: Seconds for which a session must have stood ready, so that its loss is met at once; sooner, and again and again, it is met at a pace.
STOOD = 5.0
#: Different errors of stages that are kept in mind, so that each one's traceback is logged once.
TRACED = 64


class _Lost(Exception):
    """The session ended while its stages were climbed, or after. ``fault`` is what was in the way when it was not yet ready."""

    def __init__(self, why: str, fault: StageFault | None = None) -> None:
        super().__init__(why)
        self.fault = fault


@dataclass(slots=True)
class Climber:
    """Climbs for one runtime. ``forever`` never returns; ``wiring`` is the present session's, if one stands."""

    at: BrokerAt
    parts: Parts
    state: RuntimeState
    prepare: Callable[[], Awaitable[None]]
    waits: climbing_waits = field(default_factory=climbing_waits)
    wiring: Wiring | None = None
    session: Session | None = None
    _said: tuple[Stage, str] | None = None
    _said_at: float = 0.0
    _traced: dict[str, None] = field(default_factory=dict)

    async def forever(self) -> None:
        """Climb, stay until the session is lost, climb again."""
        while True:
            try:
                session = await open_session(self.at, str(self.parts.identity), self._entering)
            except StageFault as fault:
                await asyncio.sleep(self._gap_after(fault))
                continue
            why, gap, stood_from = "", 0.0, 0.0
            session.on_blocked = self._blocked
            self._blocked(session.blocked)
            try:
                self.session, self.wiring = session, Wiring(session, self.parts)
                await self._climb_on(session, self.wiring)
                self.state.became_ready()
                stood_from, self._said = time.monotonic(), None
                log.info("ready", session=session.id)
                raise _Lost(await self._over(session))
            except _Lost as lost:
                why = str(lost)
                if lost.fault is None:
                    self.state.lost(why)
                    gap = self._gap_after_loss(session, why, time.monotonic() - stood_from)
                else:  # at the pace of READY, which is quick: a broker that was away for a moment is back
                    self.state.last_loss = why
                    gap = self._gap_after(lost.fault, Stage.READY)
                log.warning("the session is lost", session=session.id, why=why)
            finally:
                session.on_blocked = lambda _: None
                self._blocked("")
                wiring, self.session, self.wiring = self.wiring, None, None
                if wiring is not None:
                    wiring.detach(why or "the runtime is stopping")
                await session.close()
            await asyncio.sleep(gap)

    async def _over(self, session: Session) -> str:
        """Stay until the session is lost, or a grant has ended without which this runtime is not ready; why."""
        if self.parts.holder is None:
            return await session.ended()
        recalled = asyncio.ensure_future(self.parts.holder.recalled())
        try:
            either: list[asyncio.Future[Any]] = [recalled, session.lost]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            recalled.cancel()
        return session.lost.result() if session.lost.done() else recalled.result()

    async def _climb_on(self, session: Session, wiring: Wiring) -> None:
        await self._stage(session, Stage.TOPOLOGY, wiring.topology)
        await self._stage(session, Stage.GRANTS, wiring.grants)
        await self._stage(session, Stage.PREPARE, self._prepared)
        await self._stage(session, Stage.TOPOLOGY, wiring.listen)
        await self._stage(session, Stage.PROOF, wiring.prove)
        await self._stage(session, Stage.TOPOLOGY, wiring.bind_asks)
        await self._no_further_once_draining(session)

    async def _stage(self, session: Session, stage: Stage, done: Callable[[], Awaitable[None]]) -> None:
        """Try one stage until it is done. Raises ``_Lost`` as soon as the session has ended."""
        while True:
            await self._no_further_once_draining(session)
            self._entering(stage)
            fault = await self._tried(session, stage, done)
            if fault is None:
                self.state.passed(stage)
                return
            gap = self._gap_after(fault)
            await asyncio.wait([session.lost], timeout=gap)
            if session.lost.done():
                raise self._lost(session, stage)

    async def _no_further_once_draining(self, session: Session) -> None:
        """Stay where it is while work under way is finished: what was unbound must not be bound again by a climb that goes on."""
        if self.state.draining:
            why = await session.ended()
            raise _Lost(why)

    async def _tried(self, session: Session, stage: Stage, done: Callable[[], Awaitable[None]]) -> StageFault | None:
        """One attempt, cut short by its deadline or by the end of the session."""
        trial = asyncio.ensure_future(attempt(done()))
        either: list[asyncio.Future[Any]] = [trial, session.lost]
        try:
            await asyncio.wait(either, timeout=PACES[stage].deadline, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not trial.done():
                trial.cancel()
                await asyncio.wait([trial], timeout=1.0)
        if session.lost.done():
            raise self._lost(session, stage, trial)
        if trial.cancelled() or not trial.done():
            return waiting(stage, "time-out", f"{stage} was not done within {PACES[stage].deadline:g} s")
        error = trial.result()
        if error is None or isinstance(error, StageFault):
            return error
        return self._unknown(stage, error)

    def _lost(self, session: Session, stage: Stage, trial: "asyncio.Future[Exception | None] | None" = None) -> _Lost:
        """Lost before it was ready. The broker ends a session for a refusal too, and whoever asked knows the refusal's own words."""
        why = session.lost.result()
        error = trial.result() if trial is not None and trial.done() and not trial.cancelled() else None
        return _Lost(why, error if isinstance(error, StageFault) else waiting(stage, "session-lost", why, session.address))

    async def _prepared(self) -> None:
        with scoped(Scope(what="prepare")):
            await not_exiting(self.prepare())

    def _unknown(self, stage: Stage, error: Exception) -> StageFault:
        """What is unknown is waited for too: shown with type and text, its traceback logged once."""
        text = mask_text(f"{type(error).__name__}: {error}".strip().removesuffix(":"))
        if text not in self._traced:
            self._traced[text] = None
            if len(self._traced) > TRACED:  # texts that quote a time or a port never read the same
                del self._traced[next(iter(self._traced))]
            log.error("a stage raised", stage=stage, error=text, exc_info=error)
        return waiting(stage, type(error).__name__, text)

    # ------------------------------------------------------------------------------------------------ showing

    def _blocked(self, reason: str) -> None:
        """The broker's alarm: it reads nothing that is published until it is over. A state to show, not a delay to sit through."""
        self.state.degrade("broker", f"it reads nothing that is published here: {reason}" if reason else None)

    def _entering(self, stage: Stage) -> None:
        self.state.climbing(stage)

    def _gap_after(self, fault: StageFault, pace: Stage | None = None) -> float:
        """Show the fault; the seconds until the next attempt, at the pace of its own stage or of another."""
        self.state.fault(fault.stage, fault.cause)
        gap = self.waits.after(pace or fault.stage, fault.cause)
        self._say(fault.stage, fault.cause, gap)
        return gap

    def _gap_after_loss(self, session: Session, why: str, stood: float) -> float:
        """The seconds until the next climb: none after a session that stood, else at the pace of READY, whatever ends one after another."""
        if stood >= STOOD:
            self.waits.reset()
            return 0.0
        return self.waits.after(Stage.READY, Cause(Kind.WAITING, "session-lost", why, session.address))

    def _say(self, stage: Stage, cause: Cause, gap: float) -> None:
        """One line when stage or code change, and one a minute while they stand: an error where somebody must act."""
        now = time.monotonic()
        if self._said == (stage, cause.code) and now - self._said_at < REPEAT_AFTER:
            return
        self._said, self._said_at = (stage, cause.code), now
        say = log.error if cause.kind is Kind.BLOCKED else log.warning
        say(str(cause.kind), stage=str(stage), code=cause.code, cause=cause.text, attempts=self.state.attempts, again_in=round(gap, 2))
