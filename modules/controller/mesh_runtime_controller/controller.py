"""The controller's runtime: what it answers and what it is told. The work itself stands in the files beside.

It publishes nothing before its inventory is open, whole and of this mesh. A lookup that cannot be answered from it raises, so it stays
*unanswered*; *absent* is only said where the inventory was read and holds none.
"""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import structlog

from mesh_runtime import Absent, Found, Identity, ModuleRuntime, OverlayPeers, Peer, Refused, StoreAt, StoreReachableFrom, answers, told
from mesh_runtime.asking import Asker
from mesh_runtime.contracts import BadName, Report
from mesh_runtime.contracts.granting import GrantTerms, Provider, Providers, TermsOf
from mesh_runtime.contracts.operating import Place, Placed, Plan, Planned, Push, Pushed, Rekey, Rekeyed, Remove, Removed
from mesh_runtime.contracts.parking import Listeners
from mesh_runtime.startup import Stage, blocked, waiting
from mesh_runtime.telling import Teller
from mesh_runtime.trust.keys import BadKey
from mesh_runtime.trust.signing import SigningKey
from mesh_runtime_controller.changes import ForeignReport, record_report
from mesh_runtime_controller.entitling import read_listeners, read_providers, read_terms
from mesh_runtime_controller.placements import NewPlacement, end_placement, place, rekey
from mesh_runtime_controller.placing import FOUNDED, check_placement, read_identity, read_key
from mesh_runtime_controller.pushing import Pushing
from mesh_runtime_controller.records import read_mesh, read_peers, read_store
from mesh_runtime_controller.settings import ControllerSettings
from mesh_runtime_controller.store import Store, open_store, read_founding

log = structlog.stdlib.get_logger(__name__)


class Controller(ModuleRuntime):
    """Keeps the inventory, answers lookups from it, composes machines and pushes their declarations."""

    seat = "controller"
    settings: ControllerSettings

    def __init__(self, identity: Identity, settings: ControllerSettings, state_dir: Path, asker: Asker, teller: Teller) -> None:
        super().__init__(identity, settings, state_dir, asker, teller)
        self.pushing = Pushing(str(identity), self.ask_to_compose, self.declare, self.moment)
        self._store: Store | None = None
        self._key: SigningKey | None = None

    def moment(self) -> str:
        """Now, as it stands in records: UTC, ISO 8601."""
        return datetime.now(UTC).isoformat(timespec="milliseconds")

    async def keep(self) -> None:
        """Close the inventory when the process ends."""
        try:
            await asyncio.Event().wait()
        finally:
            if self._store is not None:
                await self._store.close()

    async def prepare(self) -> None:
        """Read the key, open the inventory. Raises what is not there yet or must not be used."""
        settings = self.settings
        try:
            self._key = await asyncio.to_thread(SigningKey.load, settings.signing_key)
        except BadKey as bad:
            raise blocked(Stage.PREPARE, "bad-key", str(bad)) from None
        founding = await asyncio.to_thread(read_founding, settings.founding)
        if self._store is None:
            self._store = await open_store(settings.database_file(self.state_dir), founding, self.moment)
        else:
            await self._store.check(founding)
        async with self._store.read() as connection:
            mesh = await read_mesh(connection)
        log.info("the inventory is open", mesh=mesh.mesh, epoch=mesh.epoch, revision=mesh.revision, file=str(self._store.file))

    @property
    def store(self) -> Store:
        """The open inventory; raises a fault of the stage ``prepare`` before it is."""
        if self._store is None:
            raise waiting(Stage.PREPARE, "not-open", "the inventory is not open yet")
        return self._store

    @property
    def signing_key(self) -> SigningKey:
        """The key that signs declarations; raises a fault of the stage ``prepare`` before it was read."""
        if self._key is None:
            raise waiting(Stage.PREPARE, "not-open", "the signing key is not read yet")
        return self._key

    # ------------------------------------------------------------------------------------------------ lookups

    @answers(OverlayPeers)
    async def overlay_peers(self, asked: OverlayPeers) -> Found[tuple[Peer, ...]]:
        """All other machines."""
        async with self.store.read() as connection:
            peers, mesh = await read_peers(connection, asked.of), await read_mesh(connection)
        return Found[tuple[Peer, ...]](value=peers, revision=mesh.revision)

    @answers(StoreReachableFrom)
    async def store_reachable_from(self, asked: StoreReachableFrom) -> Found[StoreAt] | Absent:
        """Where the store is, or that none is placed."""
        async with self.store.read() as connection:
            at, mesh = await read_store(connection, asked.machine), await read_mesh(connection)
        return Absent(revision=mesh.revision) if at is None else Found[StoreAt](value=at, revision=mesh.revision)

    @answers(TermsOf)
    async def terms_of(self, asked: TermsOf) -> Found[GrantTerms] | Absent:
        """Whether a consumer is placed and needs a resource; which key is recorded for it."""
        consumer, catalog = Identity.parse(asked.consumer), await asyncio.to_thread(self.pushing.catalog)
        async with self.store.read() as connection:
            terms = await read_terms(connection, catalog, consumer, asked.resource, self.identity)
            mesh = await read_mesh(connection)
        return Absent(revision=mesh.revision) if terms is None else Found[GrantTerms](value=terms, revision=mesh.revision)

    @answers(Providers)
    async def providers(self, asked: Providers) -> Found[tuple[Provider, ...]]:
        """All placements that provide something."""
        catalog = await asyncio.to_thread(self.pushing.catalog)
        async with self.store.read() as connection:
            found, mesh = await read_providers(connection, catalog), await read_mesh(connection)
        return Found[tuple[Provider, ...]](value=found, revision=mesh.revision)

    @answers(Listeners)
    async def listeners(self, asked: Listeners) -> Found[tuple[str, ...]]:
        """All placements that are told something."""
        catalog = await asyncio.to_thread(self.pushing.catalog)
        async with self.store.read() as connection:
            found, mesh = await read_listeners(connection, catalog, self.identity), await read_mesh(connection)
        return Found[tuple[str, ...]](value=tuple(map(str, found)), revision=mesh.revision)

    # ------------------------------------------------------------------------------------------------ operators' acts

    @answers(Place)
    async def place(self, asked: Place) -> Placed | Refused:
        """Record a placement."""
        identity = read_identity(asked.module, asked.machine)
        if isinstance(identity, Refused):
            return identity
        key = read_key(asked.key)
        if isinstance(key, Refused):
            return key
        catalog = await asyncio.to_thread(self.pushing.catalog)
        if (
            refused := check_placement(catalog, identity, asked.parameters, self.identity, datetime.fromisoformat(self.moment()))
        ) is not None:
            return refused
        new = NewPlacement(identity, asked.parameters, key)
        outcome = await place(self.store, new, catalog, self.identity, self.moment())
        log.info("place", placement=str(identity), by=self.asked_by, outcome=outcome.outcome)
        return outcome

    @answers(Remove)
    async def remove(self, asked: Remove) -> Removed | Refused:
        """End a placement."""
        identity = read_identity(asked.module, asked.machine)
        if isinstance(identity, Refused):
            return identity
        if identity.module in FOUNDED:
            return Refused(code="not-removable", why=f"{identity.module} is where the mesh's founding put it: no mesh is without it")
        outcome = await end_placement(self.store, identity, self.moment())
        log.info("remove", placement=str(identity), by=self.asked_by, outcome=outcome.outcome)
        return outcome

    @answers(Rekey)
    async def rekey(self, asked: Rekey) -> Rekeyed | Refused:
        """Forget the key of a placement, or record another."""
        key = read_key(asked.key)
        if isinstance(key, Refused):
            return key
        try:
            identity = Identity.parse(asked.identity)
        except BadName as bad:
            return Refused(code="bad-name", why=str(bad))
        outcome = await rekey(self.store, identity, key, self.identity, self.moment())
        log.info("rekey", placement=str(identity), by=self.asked_by, outcome=outcome.outcome)
        return outcome

    @answers(Plan)
    async def plan(self, asked: Plan) -> Planned | Refused:
        """What a push would change."""
        return await self.pushing.plan(self.store, asked)

    @answers(Push)
    async def push(self, asked: Push) -> Pushed | Refused:
        """Give intent effect."""
        return await self.pushing.push(self.store, self.signing_key, asked)

    # ------------------------------------------------------------------------------------------------ reports

    @told(Report)
    async def reported(self, report: Report) -> None:
        """Keep what a host tells of its own machine, and wake the push that waits for it."""
        if self.asked_by != f"host@{report.machine}":
            raise ForeignReport(f"a report of {report.machine} is told by host@{report.machine} alone, this one came from {self.asked_by}")
        news = await record_report(self.store, report, self.moment())
        log.info("reported", machine=report.machine, generation=report.generation, verdict=report.verdict, why=report.why, news=news)
        self.pushing.awaited.came(report)
