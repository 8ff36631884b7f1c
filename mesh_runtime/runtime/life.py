"""The life of one runtime process, between the settings and the exit: shows its state, keeps, climbs, answers, and stops in order.

Stopping: no new work (unbind, take no more tells), finish or hand back, settle and confirm, close. Every task has an owner that notices
its end: one that ends unasked takes the session down and is started again, so that a runtime is never ready while a part of it is gone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from mesh_runtime.asking import Answer, Answerer, Asker, Scope, scoped
from mesh_runtime.broker import BrokerAt
from mesh_runtime.compose import Composer
from mesh_runtime.contracts.composing import Compose
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.outcomes import Outcome
from mesh_runtime.contracts.rights import OPERATOR, rights_of
from mesh_runtime.health.lag import LoopLag
from mesh_runtime.health.serving import serve_state
from mesh_runtime.logging import install_loop_hook
from mesh_runtime.runtime.authoring import provided_by
from mesh_runtime.runtime.climbing import Climber
from mesh_runtime.runtime.manifest import manifest_of
from mesh_runtime.runtime.module import ModuleRuntime
from mesh_runtime.runtime.parked import about_parked
from mesh_runtime.runtime.threads import in_thread
from mesh_runtime.runtime.wiring import Parts, Wiring
from mesh_runtime.settings import ModuleSettings, RuntimeSettings, read_credentials
from mesh_runtime.startup import PACES, RuntimeState, Stage, waiting
from mesh_runtime.tasks import TaskOwner, attempt, not_exiting
from mesh_runtime.telling import Listener, Teller, Told

if TYPE_CHECKING:
    from mesh_runtime.grants.issuing import Issuer

log = structlog.stdlib.get_logger(__name__)

EXIT_STOPPED = 0
EXIT_DEADLINE = 75  #: sysexits.h EX_TEMPFAIL: the operator's own limit for starting has passed.

#: Seconds from being told to stop until work under way is cut short. Handing back, settling, closing and the interpreter's end have limits
#: of their own, together 2.4 s: with them all stays below the 10 s after which container engines kill.
STOP_WITHIN = 7.0
#: Seconds for leaving what is granted, which comes last: what is left of ``END_WITHIN``, within these bounds.
END_WITHIN = 9.5
LEAVE_AT_LEAST = 0.3
LEAVE_AT_MOST = 2.0
#: Seconds in which the broker must have confirmed that nothing new is sent here.
UNBIND_WITHIN = 1.0
#: Seconds before a part that ended unasked is started again, and for which it must then run before it counts as well.
RESTART_GAP = 1.0
WELL_AFTER = 60.0


def parts_of(
    cls: type[ModuleRuntime], settings: ModuleSettings, runtime: RuntimeSettings, version: str, state: RuntimeState
) -> tuple[ModuleRuntime, Parts]:
    """The module's object and the long-lived parts around it, not yet attached to any session."""
    identity = Identity(cls.module, runtime.machine)
    rights = rights_of(identity, manifest_of(cls, version))
    asker, teller = Asker(identity, rights, state), Teller(identity, rights)
    module = cls(identity, settings, runtime.state_dir, asker, teller)
    answers = [_answer(module, name, ask) for name, ask in cls.answer_methods.items()]
    if cls.slots:
        answers.append(composing(module, version, asker))
    told = [Told(tell, _handler(getattr(module, name)), f"{cls.__name__}.{name}") for name, tell in cls.told_methods.items()]
    holder, issuer, provided = None, None, provided_by(cls)
    if cls.granted_methods or provided is not None:
        from mesh_runtime.runtime.granting import holder_of, issuer_for

        if cls.granted_methods:
            holder, more_told = holder_of(module, runtime.key_file, asker, teller)
            told += more_told
        if provided is not None:
            issuer, more_answers, more_told = issuer_for(module, provided, asker, teller, state)
            answers, told = answers + more_answers, told + more_told
    listener = Listener(identity, told, state)
    if listener.listens:
        answers.append(about_parked(str(identity), listener, state))
    parts = Parts(identity, asker, Answerer(identity, answers, state), teller, listener, holder, issuer, provided)
    return module, parts


def composing(module: ModuleRuntime, version: str, asker: Asker) -> Answer:
    """How a module's ``compose`` answers the controller."""
    composer = Composer(module.module, version, module.slots, asker, module.compose)  # type: ignore[attr-defined]  # it has slots

    async def handle(ask: Compose, scope: Scope) -> Outcome:
        return await composer(ask.machine, scope)

    return Answer(Compose, handle, f"{type(module).__name__}.compose", frozenset({"controller"}))


def _answer(module: ModuleRuntime, name: str, ask: Any) -> Answer:
    who = frozenset({OPERATOR}) if ask.level == "tool" else frozenset()
    return Answer(ask, _handler(getattr(module, name)), f"{type(module).__name__}.{name}", who)


def _handler(method: Callable[..., Any]) -> Callable[[Any, Scope], Awaitable[Any]]:
    if asyncio.iscoroutinefunction(method):
        return lambda message, scope: method(message)
    return lambda message, scope: in_thread(method, message, name=method.__qualname__)


@dataclass(slots=True)
class Life:
    """One runtime, from its settings to its exit code."""

    cls: type[ModuleRuntime]
    version: str
    runtime: RuntimeSettings
    own: ModuleSettings
    state: RuntimeState
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    module: ModuleRuntime = field(init=False)
    parts: Parts = field(init=False)
    _failed: BaseException | None = None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.module, self.parts = parts_of(self.cls, self.own, self.runtime, self.version, self.state)

    async def run(self) -> int:
        """Live until ``stop`` is set; returns the exit code. Raises what is wrong outside every stage and handler."""
        install_loop_hook(asyncio.get_running_loop())
        climber = Climber(self._broker(), self.parts, self.state, self.module.prepare)
        owner = TaskOwner(self.state.identity, on_end=self._essential_ended)
        with LoopLag():
            owner.start(self._serve(), "state")
            owner.start(self._keep(self.module), "keep")
            owner.start(self._climb(climber), "climb")
            if self.parts.issuer is not None:
                owner.start(self._issue(self.parts.issuer), "grants")
            if self.runtime.startup_deadline is not None:
                owner.start(self._deadline(self.runtime.startup_deadline), "startup deadline", essential=False)
            await self._until_told()
            leave_by = asyncio.get_running_loop().time() + END_WITHIN
            self.state.drain()
            await self._drain(climber)
            await owner.stop(0.8)
            if self.parts.holder is not None:
                left = leave_by - asyncio.get_running_loop().time()
                await self.parts.holder.leave(max(LEAVE_AT_LEAST, min(LEAVE_AT_MOST, left)))
        if isinstance(self._failed, _DeadlinePassed):
            return EXIT_DEADLINE
        if self._failed is not None:
            raise self._failed
        return EXIT_STOPPED

    def _broker(self) -> BrokerAt:
        runtime = self.runtime
        return BrokerAt(
            addresses=tuple((one.host, one.port) for one in runtime.broker),
            name=runtime.name_to_verify,
            vhost=runtime.vhost,
            heartbeat=runtime.heartbeat,
            ca_file=runtime.ca_file,
            ca_pin=runtime.ca_pin,
            credentials=lambda: read_credentials(runtime.credentials),
        )

    # ------------------------------------------------------------------------------------------------ its parts

    async def _serve(self) -> None:
        """The state on its socket. Whatever goes wrong with it (a directory that cannot be used yet, as a rule) is waited for."""
        while True:
            error = await attempt(self._serving())
            words = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
            unexpected = None if isinstance(error, OSError) else error
            self.state.degrade("state", f"{self.runtime.state_dir}: {words}")
            log.error("the state cannot be shown", directory=str(self.runtime.state_dir), error=words, exc_info=unexpected)
            await asyncio.sleep(RESTART_GAP)

    async def _serving(self) -> None:
        async with serve_state(self.runtime.state_dir, self.state.snapshot):
            self.state.degrade("state", None)
            await asyncio.Event().wait()

    async def _keep(self, module: ModuleRuntime) -> None:
        """The author's ``keep``: started again when it raises; when it returns, there is nothing to keep."""
        while True:
            well = asyncio.get_running_loop().call_later(WELL_AFTER, self.state.degrade, "keep", None)
            try:
                error = await attempt(not_exiting(module.keep()))
            finally:
                well.cancel()
            if error is None:
                self.state.degrade("keep", None)
                await asyncio.Event().wait()
            self.state.degrade("keep", f"keep raised {type(error).__name__}")
            log.error("keep raised and is started again", module=self.cls.module, exc_info=error)
            await asyncio.sleep(RESTART_GAP)

    async def _issue(self, issuer: "Issuer") -> None:
        """The issuer's sweeps: from the first time that the runtime is ready, since its ledger may need what ``prepare`` made ready."""
        await self._ready_once()
        while True:
            with scoped(Scope(what="the sweeps of grants")):
                error = await attempt(issuer.run())
            self.state.degrade("grants", f"the sweeps of grants ended: {type(error).__name__}")
            log.error("the sweeps of grants ended and begin again", exc_info=error)
            await asyncio.sleep(RESTART_GAP)
            self.state.degrade("grants", None)

    async def _ready_once(self) -> None:
        ready = asyncio.Event()
        self.state.listen(lambda state: ready.set() if state.sessions else None)
        if not self.state.sessions:
            await ready.wait()

    async def _climb(self, climber: Climber) -> None:
        """Climbing. What is raised outside its stages is a fault of this library: shown, and climbed again from the start."""
        while True:
            error = await attempt(climber.forever())
            self.state.count("climbs-failed")
            fault = waiting(Stage.SETTINGS, "library-fault", f"{type(error).__name__} outside every stage")
            self.state.fault(fault.stage, fault.cause)
            log.error("climbing failed outside every stage and begins again", exc_info=error)
            await asyncio.sleep(PACES[Stage.SETTINGS].cap)

    async def _deadline(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self.state.sessions == 0:
            stage, cause = self.state.stage, self.state.cause
            log.error("not ready within MESH_STARTUP_DEADLINE", seconds=seconds, stage=str(stage), cause=cause.text if cause else "")
            self._essential_ended("startup deadline", _DeadlinePassed())

    def _essential_ended(self, name: str, error: BaseException | None) -> None:
        self._failed = error or RuntimeError(f"the task {name!r} ended unasked")
        self._ended.set()

    async def _until_told(self) -> None:
        waits = [asyncio.ensure_future(self.stop.wait()), asyncio.ensure_future(self._ended.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------ stopping

    async def _drain(self, climber: Climber) -> None:
        """Unbind, finish or hand back, settle and confirm; the climber's own end closes the session."""
        wiring, session = climber.wiring, climber.session
        if wiring is None or session is None or self._failed is not None:
            return
        log.info("draining", session=session.id)
        lost = asyncio.ensure_future(session.ended())
        work = asyncio.ensure_future(attempt(self._finish(climber)))
        try:
            await asyncio.wait([work, lost], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (work, lost):
                one.cancel()
            await asyncio.gather(work, lost, return_exceptions=True)

    async def _finish(self, climber: Climber) -> None:
        wiring, parts = climber.wiring, climber.parts
        if wiring is None:
            return
        loop = asyncio.get_running_loop()
        ends = loop.time() + STOP_WITHIN
        if (error := await attempt(_no_new_work(wiring))) is not None:
            log.warning("the broker did not confirm that nothing new is sent here", error=f"{type(error).__name__}: {error}")
        left = max(0.0, ends - loop.time())
        cut = await asyncio.gather(parts.answerer.finish(left), parts.listener.finish(left))
        if sum(cut):
            log.warning("work was cut short", asks=cut[0], tells=cut[1])
        await attempt(wiring.settle())


async def _no_new_work(wiring: Wiring) -> None:
    async with asyncio.timeout(UNBIND_WITHIN):
        await wiring.unbind_asks()
        await wiring.stop_listening()


class _DeadlinePassed(Exception):
    """The operator's own limit for starting has passed."""
