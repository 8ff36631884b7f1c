"""A controller over a real inventory, with stand-ins for what is beyond the broker: composing modules and hosts."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from sqlalchemy import text

from mesh_runtime.asking import Asker, Scope, scoped
from mesh_runtime.contracts import (
    SECTIONS,
    Absent,
    Composed,
    ComposedSection,
    ElementReport,
    File,
    Files,
    Found,
    Founding,
    Identity,
    Machine,
    Manifest,
    Refused,
    Report,
    Rested,
    Section,
    SignedDeclaration,
    Statement,
    element_digest,
    element_name,
)
from mesh_runtime.contracts.granting import GrantTerms, TermsOf
from mesh_runtime.contracts.operating import (
    MachineOutcome,
    Place,
    Placed,
    Plan,
    Planned,
    Push,
    Pushed,
    Rekey,
    Rekeyed,
    Remove,
    Removed,
)
from mesh_runtime.contracts.rights import rights_of
from mesh_runtime.runtime import manifest_of
from mesh_runtime.startup import RuntimeState
from mesh_runtime.telling import Teller
from mesh_runtime.trust.signing import SigningKey
from mesh_runtime_controller import Controller
from mesh_runtime_controller.catalog import Catalog, read_catalog
from mesh_runtime_controller.settings import ControllerSettings

ME = Identity("controller", "alpha")
KNOWS = ("files", "overlay", "registry-trust")


def composed(*sections: Section, rested: tuple[Rested, ...] = (), version: str = "1") -> Composed:
    """An answer of a composing module."""
    made = tuple(ComposedSection(section=one.section, body=one.model_dump(mode="json")) for one in sections)
    return Composed(sections=made, rested=rested, version=version)


def files(*paths: str, content: str = "x\n") -> Files:
    return Files(files=tuple(File(path=path, content=content) for path in paths))


@dataclass
class StandInHost:
    """A host as the controller sees one: takes what is signed and newer, refuses removals that are not named, reports what it holds."""

    machine: str
    mesh: str
    key: SigningKey
    report: Callable[[Report], Awaitable[None]]
    knows: tuple[str, ...] = KNOWS
    silent: bool = False
    failing: dict[str, str] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    epoch: int = 0
    generation: int = 0
    taken: list[Statement] = field(default_factory=list)

    async def declared(self, signed: SignedDeclaration) -> None:
        self.key.verify_key.verify(signed.statement.encode(), signed.signature)
        statement = Statement.model_validate_json(signed.statement)
        assert statement.machine == self.machine
        self.taken.append(statement)
        if self.silent:
            return None
        elements: dict[str, str] = {}
        for one in statement.sections:
            value = TypeAdapter(_union(one.section)).validate_python(one.body)
            elements |= {element_name(one.section, one.module, key): element_digest(part) for key, part in value.elements().items()}
        removes = {one.element for one in statement.removes}
        if (statement.epoch, statement.generation) <= (self.epoch, self.generation):
            return await self.say("refused", why="stale", generation=statement.generation, epoch=statement.epoch)
        if unnamed := self.held.keys() - elements.keys() - removes:
            why = f"not named: {sorted(unnamed)}"
            return await self.say("refused", why=why, generation=statement.generation, epoch=statement.epoch)
        gone = sorted(removes & self.held.keys())
        self.held = {element: "" if element in self.failing else digest for element, digest in elements.items()}
        self.epoch, self.generation = statement.epoch, statement.generation
        await self.say("failed" if self.failing else "in-force", gone=gone)
        return None

    async def say(
        self,
        verdict: Any,
        why: str = "",
        gone: list[str] | None = None,
        generation: int | None = None,
        epoch: int | None = None,
        number: int = 0,
    ) -> None:
        elements = [
            ElementReport(
                element=element,
                state="failed" if element in self.failing else "in-force",
                detail=self.failing.get(element, ""),
                digest=digest,
            )
            for element, digest in sorted(self.held.items())
        ] + [ElementReport(element=element, state="removed") for element in gone or ()]
        await self.report(
            Report(
                machine=self.machine,
                mesh=self.mesh if self.generation else "",
                epoch=self.epoch if epoch is None else epoch,
                generation=self.generation if generation is None else generation,
                number=number,
                verdict=verdict,
                why=why,
                elements=tuple(elements),
                knows=self.knows,
            )
        )


def _union(section: str) -> Any:
    first, *others = SECTIONS[section]
    union: Any = first
    for one in others:
        union = union | one
    return union


class ControllerWithStandIns(Controller):
    """The controller itself, but for the two ways out through the broker."""

    modules: dict[str, Callable[[Machine], Awaitable[Any]]]
    hosts: dict[str, StandInHost]
    undelivered: dict[str, Exception]
    clock: int = 0

    async def ask_to_compose(self, module: str, machine: Machine, budget: float | None = None) -> Any:
        return await self.modules[module](machine)

    async def declare(self, machine: str, declaration: SignedDeclaration, epoch: int, generation: int) -> str:
        if machine in self.undelivered:
            raise self.undelivered[machine]
        await self.hosts[machine].declared(declaration)
        return "id"

    def moment(self) -> str:
        self.clock += 1
        return datetime.fromtimestamp(self.clock, UTC).isoformat()


@dataclass
class Desk:
    """A controller, and all that stands around it in a test."""

    directory: Path
    mesh: str
    key: SigningKey
    controller: ControllerWithStandIns
    manifests: dict[str, Manifest]

    @property
    def file(self) -> Path:
        return self.controller.settings.database_file(self.controller.state_dir)

    @property
    def hosts(self) -> dict[str, StandInHost]:
        return self.controller.hosts

    def module(self, name: str, answer: Any, sections: tuple[str, ...] = ("files",), seat: str | None = None) -> None:
        """A composing module: ``answer`` is an outcome, an exception, or a function of the machine that gives either."""

        async def compose(machine: Machine) -> Any:
            said = answer(machine) if callable(answer) else answer
            if isinstance(said, Exception):
                raise said
            return said.model_copy(update={"by": f"{name}@alpha"}) if isinstance(said, Refused) else said

        self.controller.modules[name] = compose
        self.manifests[name] = Manifest(module=name, version="1", command=("x",), sections=sections, seat=seat)

    def granting(self, name: str, needs: tuple[str, ...] = (), provides: tuple[str, ...] = ()) -> None:
        """A module that composes nothing: it needs resources, or provides types of them."""
        self.manifests[name] = Manifest(module=name, version="1", command=("x",), needs=needs, provides=provides)

    async def place(self, module: str, machine: str = "alpha", **parameters: str) -> Placed | Refused:
        return await self.controller.place(Place(module=module, machine=machine, parameters=parameters))

    async def place_with_key(self, module: str, key: str, machine: str = "alpha", **parameters: str) -> Placed | Refused:
        return await self.controller.place(Place(module=module, machine=machine, parameters=parameters, key=key))

    async def rekey(self, identity: str, key: str = "") -> Rekeyed | Refused:
        return await self.controller.rekey(Rekey(identity=identity, key=key))

    async def terms(self, consumer: str, resource: str = "database.1/orders") -> Found[GrantTerms] | Absent:
        return await self.controller.terms_of(TermsOf(consumer=consumer, resource=resource))

    async def remove(self, module: str, machine: str = "alpha") -> Removed | Refused:
        return await self.controller.remove(Remove(module=module, machine=machine))

    async def plan(self, *machines: str) -> Planned:
        planned = await self.controller.plan(Plan(machines=machines))
        assert isinstance(planned, Planned), planned
        return planned

    async def push(self, *machines: str, **more: Any) -> dict[str, MachineOutcome]:
        pushed = await self.controller.push(Push(machines=machines, **{"patience": 5.0, **more}))
        assert isinstance(pushed, Pushed), pushed
        return {one.machine: one for one in pushed.machines}

    async def push_refused(self, *machines: str, **more: Any) -> Refused:
        refused = await self.controller.push(Push(machines=machines, **more))
        assert isinstance(refused, Refused), refused
        return refused

    async def generation(self, machine: str = "alpha") -> int:
        """The newest generation that the inventory holds for a machine."""
        async with self.controller.store.read() as connection:
            row = await connection.execute(text("SELECT generation FROM machines WHERE name = :n"), {"n": machine})
            return int(row.scalar_one())

    async def refusals(self) -> dict[str, tuple[str, str]]:
        """Code and since of every refusal that is listed."""
        async with self.controller.store.read() as connection:
            rows = (await connection.execute(text("SELECT machine, code, since FROM refusals"))).all()
        return {row.machine: (row.code, row.since) for row in rows}

    async def start_hosts(self) -> None:
        """Every host reports that it is there and holds nothing."""
        for host in self.hosts.values():
            await host.say("standing")

    async def close(self) -> None:
        if self.controller._store is not None:
            await self.controller._store.close()


def make_controller(directory: Path, settings: ControllerSettings) -> ControllerWithStandIns:
    rights = rights_of(ME, manifest_of(Controller, "1"))
    made = ControllerWithStandIns(ME, settings, directory, Asker(ME, rights, RuntimeState(str(ME), "1", 1)), Teller(ME, rights))
    made.modules, made.hosts, made.undelivered = {}, {}, {}
    return made


def make_desk(directory: Path, machines: int = 2) -> Desk:
    names = ["alpha", "beta", *(f"m{number}" for number in range(3, machines + 1))][:machines]
    founding = {"mesh": "m-1", "epoch": 1, "machines": [{"name": name, "address": f"10.0.0.{at}"} for at, name in enumerate(names, 1)]}
    Founding.model_validate(founding)
    (directory / "founding.json").write_text(json.dumps(founding))
    key = SigningKey.generate()
    key.save(directory / "controller.key")
    settings = ControllerSettings(signing_key=directory / "controller.key", founding=directory / "founding.json")
    controller = make_controller(directory, settings)
    desk = Desk(directory, "m-1", key, controller, {})
    controller.pushing.catalog = lambda: Catalog({**read_catalog().manifests, **desk.manifests})

    def report_of(name: str) -> Callable[[Report], Awaitable[None]]:
        async def report(told: Report) -> None:
            with scoped(Scope(what="test", sender=f"host@{name}")):
                await controller.reported(told)

        return report

    controller.hosts = {name: StandInHost(name, "m-1", key, report_of(name)) for name in names}
    return desk


@pytest.fixture
async def unprepared(tmp_path: Path) -> AsyncIterator[Desk]:
    """A controller of two machines, alpha and beta, before ``prepare``."""
    desk = make_desk(tmp_path)
    yield desk
    await desk.close()


@pytest.fixture
async def desk(unprepared: Desk) -> Desk:
    """The same with its inventory open and both hosts heard."""
    await unprepared.controller.prepare()
    await unprepared.start_hosts()
    return unprepared


@pytest.fixture
async def placed(desk: Desk, write: Any) -> Desk:
    """The same with ``motd`` on both machines, which composes one file."""
    desk.module("motd", lambda machine: write.composed(write.files("/etc/motd", content=f"{machine.name}\n")))
    await desk.place("motd", "alpha")
    await desk.place("motd", "beta")
    return desk


@pytest.fixture
def write() -> Any:
    """``composed`` and ``files``, to write answers with."""

    class Write:
        composed = staticmethod(composed)
        files = staticmethod(files)

    return Write
