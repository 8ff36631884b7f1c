"""A push: compose each machine, sign, store, tell, and wait for what its host has seen. One outcome for each machine, whatever comes.

What refuses one machine refuses no other. A declaration is stored before it is told, so a generation is never given twice. Nothing counts
as done because no error was raised: only a host's report makes it so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import structlog

from mesh_runtime import NotSent, SendUnknown, TooLarge
from mesh_runtime.asking import current_scope
from mesh_runtime.contracts import Refused, Removal, SignedDeclaration, Statement
from mesh_runtime.contracts.operating import MachineOutcome, MachinePlan, Plan, Planned, Push, Pushed
from mesh_runtime.contracts.wire import NESTED_SHARE
from mesh_runtime.tasks import attempt
from mesh_runtime.trust.signing import SigningKey
from mesh_runtime_controller.catalog import Catalog, read_catalog
from mesh_runtime_controller.changes import (
    Moved,
    NewDeclaration,
    StoreBehind,
    clear_refusal,
    mark_pushed,
    mark_told,
    record_refusal,
    store_declaration,
    unknown_machines,
)
from mesh_runtime_controller.composing import AskToCompose, ComposedMachine, compose_machine, has_something_to_push
from mesh_runtime_controller.judging import judge
from mesh_runtime_controller.planning import fingerprint_of, is_in_force, plan_of
from mesh_runtime_controller.records import MachineView, MalformedRecord, machine_names, machines_ahead, read_machine
from mesh_runtime_controller.removing import removals
from mesh_runtime_controller.reporting import AwaitedReports
from mesh_runtime_controller.store import Store

log = structlog.stdlib.get_logger(__name__)

#: Composes of one machine in one push, before it is refused because its ground does not stand still.
MOST_TRIES = 3

Declare = Callable[[str, SignedDeclaration, int, int], Awaitable[str]]


@dataclass(slots=True)
class Pushing:
    """All that a push needs of its controller. Lives as long as the runtime."""

    controller: str
    ask: AskToCompose
    declare: Declare
    now: Callable[[], str]
    catalog: Callable[[], Catalog] = read_catalog
    awaited: AwaitedReports = field(default_factory=AwaitedReports)
    _under_way: set[str] = field(default_factory=set)

    # ------------------------------------------------------------------------------------------------ plan

    async def plan(self, store: Store, plan: Plan) -> Planned | Refused:
        """What a push would change."""
        catalog = await asyncio.to_thread(self.catalog)
        targets = await self._targets(store, catalog, plan.machines)
        if isinstance(targets, Refused):
            return targets
        composed = dict(zip(targets, await asyncio.gather(*(self._composed(store, catalog, one) for one in targets)), strict=True))
        plans = [
            MachinePlan(machine=name, refused=one) if isinstance(one, Refused) else plan_of(one, catalog) for name, one in composed.items()
        ]
        return Planned(machines=tuple(plans), fingerprint=fingerprint_of(composed))

    async def _targets(self, store: Store, catalog: Catalog, named: Sequence[str]) -> tuple[str, ...] | Refused:
        """The machines to look at: those named, else all on which something is placed or held."""
        async with store.read() as connection:
            if (refused := await unknown_machines(connection, tuple(named))) is not None:
                return refused
            if ahead := await machines_ahead(connection):
                return _behind("; ".join(ahead))
            idle = []
            names = tuple(dict.fromkeys(named)) or await machine_names(connection)
            for name in names:
                try:
                    view = await read_machine(connection, name)
                except MalformedRecord:
                    continue  # it has something, and is refused by name when it is composed
                if not has_something_to_push(view, catalog):
                    idle.append(name)
        if len(idle) == len(names):
            why = f"nothing is placed on {', '.join(names)} that composes anything, and nothing is held there: place a module first"
            return Refused(code="nothing-to-do", why=why)
        return names if named else tuple(name for name in names if name not in idle)

    async def _composed(self, store: Store, catalog: Catalog, machine: str) -> ComposedMachine | Refused:
        """Compose one machine; whatever fails there in any way refuses that machine and no other."""
        outcomes: list[ComposedMachine | Refused] = []

        async def work() -> None:
            outcomes.append(await self._of_one_revision(store, catalog, machine))

        error = await attempt(work())
        if error is None:
            return outcomes[0]
        log.error("a machine could not be composed", machine=machine, exc_info=error)
        return Refused(code="error", why=f"{type(error).__name__}: {error}"[:2000], again=True, by=self.controller)

    async def _of_one_revision(self, store: Store, catalog: Catalog, machine: str) -> ComposedMachine | Refused:
        """Compose one machine from one revision; again if that moved."""
        moved = ""
        for _ in range(MOST_TRIES):
            try:
                async with store.read() as connection:
                    view = await read_machine(connection, machine)
                if view.report is None:
                    return _unheard(view)
                if not has_something_to_push(view, catalog):
                    return Refused(code="nothing-to-do", why=f"nothing is placed on {machine} that composes anything, and it holds nothing")
                composed = await compose_machine(view, catalog, self.ask, self.controller)
                async with store.read() as connection:
                    after = await read_machine(connection, machine)
            except MalformedRecord as malformed:
                return Refused(code="malformed-record", why=str(malformed), by=self.controller)
            except Moved as error:
                moved = str(error)
                continue
            if after.mesh == view.mesh:
                return composed
            moved = f"the inventory went from revision {view.mesh.revision} to {after.mesh.revision}"
        return self._moved(machine, moved)

    # ------------------------------------------------------------------------------------------------ push

    async def push(self, store: Store, key: SigningKey, push: Push) -> Pushed | Refused:
        """Give intent effect, and wait for the reports."""
        catalog = await asyncio.to_thread(self.catalog)
        targets = await self._targets(store, catalog, push.machines)
        if isinstance(targets, Refused):
            return targets
        mine = tuple(one for one in targets if one not in self._under_way)
        busy = [_outcome(one, _under_way(one)) for one in targets if one not in mine]
        self._under_way.update(mine)
        try:
            one_push = _OnePush(self, store, key, catalog, push)
            outcomes = await one_push.run(mine)
        finally:
            self._under_way.difference_update(mine)
        if isinstance(outcomes, Refused):
            return outcomes
        return Pushed(machines=tuple(sorted([*outcomes, *busy], key=lambda one: one.machine)))

    def _moved(self, machine: str, what: str) -> Refused:
        why = f"{machine} was composed {MOST_TRIES} times and moved each time: {what}"
        return Refused(code="moved", why=why, again=True, by=self.controller)


@dataclass(slots=True)
class _OnePush:
    """One push under way."""

    of: Pushing
    store: Store
    key: SigningKey
    catalog: Catalog
    push: Push

    async def run(self, machines: Sequence[str]) -> list[MachineOutcome] | Refused:
        """Compose all, check what concerns all, then bring each on its way."""
        all_composed = await asyncio.gather(*(self.of._composed(self.store, self.catalog, one) for one in machines))
        composed = dict(zip(machines, all_composed, strict=True))
        if self.push.plan and fingerprint_of(composed) != self.push.plan:
            return Refused(code="plan-moved", why="what the plan rests on has moved since: make a new plan", again=False)
        held = {element for one in composed.values() if isinstance(one, ComposedMachine) for element in one.view.held()}
        whole = all(isinstance(one, ComposedMachine) for one in composed.values())
        if whole and (unknown := sorted(set(self.push.remove) - held)):
            return Refused(code="unknown-element", why=f"{', '.join(unknown)}: held by none of {', '.join(machines)}")
        outcomes: dict[str, MachineOutcome] = {}
        await asyncio.gather(*(self._confined(outcomes, machine, one) for machine, one in composed.items()))
        return [outcomes[machine] for machine in machines]

    async def _confined(self, outcomes: dict[str, MachineOutcome], machine: str, composed: ComposedMachine | Refused) -> None:
        """One machine's way; what fails there in any way is that machine's outcome and nobody else's."""

        async def work() -> None:
            outcomes[machine] = await self._brought(machine, composed)
            await self._list(outcomes, machine)

        error = await attempt(work())
        if error is not None:
            log.error("a machine's push failed", machine=machine, known=machine in outcomes, exc_info=error)
            why = f"{type(error).__name__}: {error}"[:2000]
            outcomes.setdefault(machine, MachineOutcome(machine=machine, verdict="failed", by=self.of.controller, why=why))

    async def _brought(self, machine: str, composed: ComposedMachine | Refused) -> MachineOutcome:
        for _ in range(MOST_TRIES):
            if isinstance(composed, Refused):
                return _outcome(machine, composed)
            removed = removals(composed, self.push.remove)
            if isinstance(removed, Refused):
                return _outcome(machine, removed.model_copy(update={"by": self.of.controller}))
            if is_in_force(composed, removed):
                reported = () if composed.view.report is None else composed.view.report.elements
                generation, heard = composed.view.generation, composed.view.heard
                await mark_pushed(self.store, machine, composed.view.mesh.revision)
                return MachineOutcome(machine=machine, verdict="unchanged", generation=generation, since=heard, elements=reported)
            statement = _statement(composed, removed)
            text = statement.model_dump_json()
            signed = SignedDeclaration(statement=text, signature=self.key.sign(text.encode()))
            new = NewDeclaration(signed, statement.generation, composed.elements, composed.modules)
            try:
                await store_declaration(self.store, composed.view, new, self.of.now())
            except StoreBehind as behind:
                return _outcome(machine, _behind(str(behind)))
            except Moved as error:
                moved = str(error)
                before = fingerprint_of({machine: composed})
                composed = await self.of._composed(self.store, self.catalog, machine)
                if self.push.plan and fingerprint_of({machine: composed}) != before:
                    return _outcome(machine, Refused(code="plan-moved", why=f"what the plan rests on has moved: {moved}"))
                continue
            return await self._told(composed, statement, signed)
        return _outcome(machine, self.of._moved(machine, "before it could be signed"))

    async def _told(self, composed: ComposedMachine, statement: Statement, signed: SignedDeclaration) -> MachineOutcome:
        machine, epoch, generation = statement.machine, statement.epoch, statement.generation
        log.info("declaring", machine=machine, generation=generation, elements=len(composed.elements), removes=len(statement.removes))
        with self.of.awaited.expecting(machine, epoch, generation) as awaited:
            unknown = ""
            try:
                await self.of.declare(machine, signed, epoch, generation)
                told = "told"
            except (NotSent, TooLarge) as not_sent:
                await mark_told(self.store, machine, generation, "not-sent")
                return MachineOutcome(
                    machine=machine, verdict="failed", generation=generation, by=self.of.controller, why=f"not sent: {not_sent}"
                )
            except SendUnknown as error:
                told, unknown = "unknown", f"; {error}"
            await mark_told(self.store, machine, generation, told)
            await asyncio.wait([awaited.report], timeout=_patience(self.push.patience))
            if awaited.report.done():
                outcome = judge(awaited.report.result(), statement, composed.elements)
                if outcome.verdict == "in-force":
                    await mark_pushed(self.store, machine, statement.revision)
                return outcome
        heard = composed.view.heard
        said = "".join(f"; it told: {words}" for words in awaited.said)
        why = f"no report of generation {generation} came within {self.push.patience:g} s{unknown}{said}"
        return MachineOutcome(machine=machine, verdict="unheard", generation=generation, by=f"host@{machine}", why=why, since=heard)

    async def _list(self, outcomes: dict[str, MachineOutcome], machine: str) -> None:
        """Keep the list of refusals that stand."""
        outcome = outcomes[machine]
        if outcome.refused is None:
            if outcome.verdict in ("in-force", "unchanged"):
                await clear_refusal(self.store, machine)
            return
        log.error("a machine is refused", machine=machine, code=outcome.refused.code, by=outcome.by, why=outcome.why)
        if outcome.refused.code in _NOT_STANDING:
            return
        since = await record_refusal(self.store, machine, outcome.refused, self.of.now())
        outcomes[machine] = outcome.model_copy(update={"since": since})


#: Refusals of one push that say nothing about the machine.
_NOT_STANDING = frozenset({"plan-moved", "push-under-way", "nothing-to-do"})


def _statement(composed: ComposedMachine, removed: tuple[Removal, ...]) -> Statement:
    view = composed.view
    return Statement(
        mesh=view.mesh.mesh,
        machine=view.name,
        epoch=view.mesh.epoch,
        generation=view.generation + 1,
        revision=view.mesh.revision,
        sections=composed.sections,
        removes=removed,
    )


def _outcome(machine: str, refused: Refused) -> MachineOutcome:
    if refused.code == "unheard":
        return MachineOutcome(machine=machine, verdict="unheard", by=refused.by, why=refused.why)
    return MachineOutcome(machine=machine, verdict="refused", by=refused.by, why=refused.why, refused=refused)


def _unheard(view: MachineView) -> Refused:
    why = f"the host of {view.name} has never reported, so what it holds and which sections it knows is unknown"
    return Refused(code="unheard", why=why, again=True, by=f"host@{view.name}")


def _under_way(machine: str) -> Refused:
    return Refused(code="push-under-way", why=f"another push of {machine} is under way", again=True)


def _behind(what: str) -> Refused:
    return Refused(code="store-behind", why=f"this controller's store has lost history and declares nothing: {what}")


def _patience(asked: float) -> float:
    """Seconds to wait for a report: as asked, but never so long that the push itself could no longer be answered."""
    scope = current_scope()
    if scope is None or scope.deadline is None:
        return max(0.0, asked)
    return max(0.0, min(asked, (scope.deadline - asyncio.get_running_loop().time()) * NESTED_SHARE))
