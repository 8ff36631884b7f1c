"""The host's runtime: takes declarations, applies and guards the last one, and tells what stands.

A declaration is judged and stored durably, then its delivery is acknowledged; the work is done by `keep`, which runs without a broker and
finishes after a crash what was pending. A declaration that is refused touches nothing and is told so, with why.
"""

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from mesh_runtime.asking import Asker
from mesh_runtime.contracts import Identity, Report, SignedDeclaration
from mesh_runtime.contracts.declaring import Verdict
from mesh_runtime.runtime import ModuleRuntime, told
from mesh_runtime.runtime.threads import in_thread
from mesh_runtime.settings import NotThereYet, read_file
from mesh_runtime.telling import Teller
from mesh_runtime.trust import BadKey, VerifyKey
from mesh_runtime_host.applying import Applier, Brought
from mesh_runtime_host.judging import (
    Layout,
    Refusal,
    Repeated,
    believed,
    check_addressee,
    check_newer,
    check_removals,
    elements_declared,
)
from mesh_runtime_host.rendering import KNOWS
from mesh_runtime_host.reporting import Reporter
from mesh_runtime_host.settings import HostSettings
from mesh_runtime_host.store import Floor, Number, Store

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Taken:
    """Accepted; `overtaken` is the floor before, if its verdict was never told."""

    overtaken: Floor | None


class Host(ModuleRuntime):
    """Brings its machine to what the controller declared, and keeps it there."""

    module = "host"
    tells = (Report,)
    settings: HostSettings

    def __init__(self, identity: Identity, settings: HostSettings, state_dir: Path, asker: Asker, teller: Teller) -> None:
        super().__init__(identity, settings, state_dir, asker, teller)
        self.layout = Layout(settings.root, (state_dir, settings.controller_key))
        self.store = Store(state_dir)
        self.applier = Applier(self.store, self.layout)
        self.reporter = Reporter(self._tell)
        self._new = asyncio.Event()
        self._last: Brought | None = None
        self._behind_since = ""
        self._unusable = ""

    # ------------------------------------------------------------------------------------------------ what the library calls

    async def prepare(self) -> None:
        """Ready means: the controller's key is there, and so is the root."""
        self._key()
        if not self.settings.root.is_dir():
            raise NotADirectoryError(f"{self.settings.root} (MESH_HOST_ROOT) is not a directory that is there")

    async def keep(self) -> None:
        """Guard the last accepted declaration, with or without a broker, and tell until it is heard."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.reporter.run(), name="host reports")
            tasks.create_task(self._guard(), name="host guards")

    @told(SignedDeclaration)
    async def declared(self, signed: SignedDeclaration) -> None:
        """Take a declaration or refuse it; returns once that is on disk."""
        try:
            taken = await in_thread(self.take, signed, name="host takes a declaration")
        except Repeated:
            log.info("a declaration came again and is in hand already")
            await self._tell_repeated()
        except Refusal as refusal:
            await self._tell_refused(refusal.number, str(refusal))
        except OSError as unkept:  # the disk is full, or the state directory is gone: said at once, and the controller sends another
            await self._tell_refused((0, 0), f"not-stored: the declaration could not be stored: {unkept}")
        else:
            self._behind_since = ""
            if taken.overtaken is not None:
                self._tell_overtaken(taken.overtaken)
            self._new.set()

    def take(self, signed: SignedDeclaration) -> _Taken:
        """Judge and store a declaration, blocking; raises Refusal, Repeated, or OSError if it could not be stored."""
        statement = believed(signed, self._key_or_refusal())
        with self.store.locked():
            floor = self.store.floor()
            check_addressee(statement, self.machine, floor)
            check_newer(statement, floor, same=self.store.signed() == signed)
            elements = elements_declared(statement, self.layout)
            check_removals(statement, elements, self._held())
            self.store.accept(signed, statement)
        log.info("a declaration is accepted", epoch=statement.epoch, generation=statement.generation, elements=len(elements))
        return _Taken(None if floor.told else floor)

    # ------------------------------------------------------------------------------------------------ guarding

    async def _guard(self) -> None:
        while True:
            self._new.clear()
            try:
                brought = await in_thread(self.applier.bring, name="host applies")
            except OSError as unusable:
                await self._tell_unusable(unusable)
            else:
                if brought.superseded:
                    continue
                self._unusable = ""
                self._settle(brought)
            await _set_within(self._new, self.settings.guard)

    def _settle(self, brought: Brought) -> None:
        """Tell what came of it, if there is something new to tell."""
        before, self._last = self._last, brought
        why = "; ".join([*([brought.refused] if brought.refused else []), *brought.failures, *self.store.damage()])
        if not brought.floor.told:
            verdict: Verdict = "failed" if brought.failures or brought.refused else "in-force"
            self.reporter.put(self._report(brought, verdict, why), self._verdict_heard)
            return
        mended = [one.element for one in brought.elements if one.element in brought.drifted and one.state == "in-force"]
        if before is None or mended or brought.elements != before.elements:
            words = [f"mended after a change from outside: {', '.join(mended)}"] if mended else []
            self.reporter.put(self._report(brought, "standing", "; ".join([*words, *([why] if why else [])])))

    async def _verdict_heard(self, report: Report) -> None:
        try:
            await in_thread(self._mark_told, (report.epoch, report.generation), name="host marks a report")
        except OSError as unkept:  # it is told once more after the next look: a repeat is harmless
            log.warning("that a verdict was heard could not be written down", error=str(unkept))

    def _mark_told(self, number: Number) -> None:
        with self.store.locked():
            self.store.told(number)

    # ------------------------------------------------------------------------------------------------ telling

    async def _tell(self, report: Report, message_id: str) -> None:
        await self.tell(report, message_id=message_id)

    async def _tell_refused(self, number: Number, why: str) -> None:
        self._behind_since = self._behind_since or _now()
        log.error("a declaration is refused", why=why, epoch=number[0], generation=number[1])
        brought = await in_thread(self._looked, name="host looks")
        words = f"{why}; what stands ({_named(brought.floor)}) is stale since {self._behind_since}"
        refused = Floor(mesh=brought.floor.mesh, epoch=number[0], generation=number[1])
        self.reporter.put(self._report(replace(brought, floor=refused), "refused", words))

    async def _tell_repeated(self) -> None:
        brought = await in_thread(self._looked, name="host looks")
        if brought.floor.told:
            words = f"stale: {_named(brought.floor)} is accepted already, it came again"
            self._tell_standing(brought, words)
        else:  # its verdict is still to come, and it may have been cut the first time right after it was stored
            self._new.set()  # so that it is applied now, and not at the guard's next look

    async def _tell_unusable(self, unusable: OSError) -> None:
        """The host's own state cannot be written: nothing is applied meanwhile, and that is said once."""
        words = f"the host's own state cannot be used: {unusable}"
        if words != self._unusable:
            self._unusable = words
            log.error("nothing can be applied: the host's own state cannot be used", error=str(unusable))
            brought = await in_thread(self._looked, name="host looks")
            self._tell_standing(brought, words)

    def _tell_standing(self, brought: Brought, why: str) -> None:
        self._last = brought  # so that the next look tells what is no longer as told here
        self.reporter.put(self._report(brought, "standing", why))

    def _tell_overtaken(self, floor: Floor) -> None:
        why = f"overtaken: a newer declaration came before {_named(floor)} was in force"
        self.reporter.put(self._report(Brought(floor, ()), "failed", why))

    def _report(self, of: Brought, verdict: Verdict, why: str = "") -> Report:
        return Report(
            machine=self.machine,
            mesh=of.floor.mesh,
            epoch=max(of.floor.epoch, 0),
            generation=max(of.floor.generation, 0),
            number=of.number,
            verdict=verdict,
            why=why,
            elements=of.elements,
            knows=KNOWS,
        )

    # ------------------------------------------------------------------------------------------------ what it reads

    def _held(self) -> set[str]:
        """Names of all that is ours; if the ledger was lost, also all that the last declaration put here."""
        held = set(self.store.ledger().elements)
        last = self.store.accepted()
        if not held and last is not None:
            held = {one.name for one in elements_declared(last, self.layout)}
        return held

    def _looked(self) -> Brought:
        try:
            return self.applier.look()
        except OSError as unseen:
            log.error("what stands cannot be looked at", error=str(unseen))
            return Brought(Floor(), ())

    def _key(self) -> VerifyKey:
        return VerifyKey.parse(read_file(self.settings.controller_key).decode("ascii", "replace"))

    def _key_or_refusal(self) -> VerifyKey:
        try:
            return self._key()
        except (BadKey, NotThereYet) as unusable:
            raise Refusal("no-key", f"the controller's key (MESH_HOST_CONTROLLER_KEY) cannot be used: {unusable}") from unusable


def _named(floor: Floor) -> str:
    return f"generation {floor.generation} of epoch {floor.epoch}" if floor.generation >= 0 else "nothing"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
