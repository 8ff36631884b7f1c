"""What the inventory says, read: rows to values. A row that cannot be read is an error that names it, never nothing.

Everything a machine is composed from is read in one transaction (``MachineView``), so it is of one revision.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mesh_runtime.contracts import FoundedMachine, Peer, Report, Rested, StoreAt
from mesh_runtime_controller import tables

_TEXTS: TypeAdapter[dict[str, str]] = TypeAdapter(dict[str, str])


class MalformedRecord(Exception):
    """A row of the inventory cannot be read. The text names the record and what is wrong with it."""

    def __init__(self, record: str, why: str) -> None:
        super().__init__(f"the record {record!r} is malformed: {why}")
        self.record = record


class UnknownMachine(LookupError):
    """The inventory holds no such machine. The text names it and those that are known."""

    def __init__(self, machine: str, known: tuple[str, ...]) -> None:
        super().__init__(f"the mesh has no machine {machine!r}; it has {', '.join(known) or 'none'}")


@dataclass(frozen=True, slots=True)
class Mesh:
    """Whose inventory it is, and how far it is."""

    mesh: str
    epoch: int
    revision: int


@dataclass(frozen=True, slots=True)
class Placement:
    """A module on a machine, as the operator said, since a revision."""

    module: str
    machine: str
    parameters: Mapping[str, str]
    since_revision: int
    since: str


class ModuleRests(BaseModel):
    """What one module's part of a declaration rests on."""

    model_config = ConfigDict(frozen=True)

    version: str
    parameters: dict[str, str]
    rested: tuple[Rested, ...]


@dataclass(frozen=True, slots=True)
class Declared:
    """A declaration that was signed. ``elements`` maps each to its digest. ``told``: stored, told, not-sent, unknown, refused."""

    epoch: int
    generation: int
    revision: int
    told: str
    elements: Mapping[str, str]
    modules: Mapping[str, ModuleRests]

    @property
    def may_be_taken(self) -> bool:
        """Whether its host may have applied it, or may still: unless it certainly did not arrive, or was refused."""
        return self.told not in ("not-sent", "refused")


@dataclass(frozen=True, slots=True)
class MachineView:
    """All that the inventory knows of one machine, at one revision. ``declared`` is in the order of generations.

    ``store`` is the placement of the mesh's store, on whatever machine. What was said up to the revision ``pushed`` has taken effect here.
    """

    mesh: Mesh
    name: str
    address: str
    generation: int
    placements: tuple[Placement, ...]
    store: Placement | None = None
    ended: Mapping[str, int] = field(default_factory=dict)
    declared: tuple[Declared, ...] = ()
    report: Report | None = None
    heard: str = ""
    pushed: int = 0

    def ends_to_push(self) -> frozenset[str]:
        """Modules whose placement here has ended, and was not pushed since."""
        placed = {one.module for one in self.placements}
        return frozenset(module for module, revision in self.ended.items() if module not in placed and revision > self.pushed)

    def held(self) -> dict[str, str]:
        """What the machine holds or may hold, with the digest where it is known: what was reported, and what was declared since."""
        held: dict[str, str] = {}
        reported = (0, 0)
        if self.report is not None:
            reported = (self.report.epoch, self.report.generation)
            held |= {one.element: one.digest for one in self.report.elements if one.state != "removed"}
        for one in self.declared:
            if (one.epoch, one.generation) > reported and one.may_be_taken:
                held |= {element: digest if held.get(element) == digest else "" for element, digest in one.elements.items()}
        return held


async def read_mesh(connection: AsyncConnection) -> Mesh:
    """Whose inventory it is."""
    row = (await connection.execute(select(tables.mesh.c.mesh, tables.mesh.c.epoch, tables.mesh.c.revision))).one()
    return Mesh(row.mesh, row.epoch, row.revision)


async def machine_names(connection: AsyncConnection) -> tuple[str, ...]:
    """Every machine's name, sorted."""
    return tuple((await connection.execute(select(tables.machines.c.name).order_by(tables.machines.c.name))).scalars())


async def read_peers(connection: AsyncConnection, of: str) -> tuple[Peer, ...]:
    """Every other machine, whole. Raises ``UnknownMachine``, ``MalformedRecord``."""
    rows = (await connection.execute(select(tables.machines).order_by(tables.machines.c.name))).all()
    if of not in [row.name for row in rows]:
        raise UnknownMachine(of, tuple(row.name for row in rows))
    machines = [_machine(row) for row in rows]
    return tuple(Peer(machine=one.name, address=one.address) for one in machines if one.name != of)


async def read_store(connection: AsyncConnection, machine: str) -> StoreAt | None:
    """Where the mesh's store is. Raises ``UnknownMachine``, ``MalformedRecord``."""
    names = await machine_names(connection)
    if machine not in names:
        raise UnknownMachine(machine, names)
    placement = await _store_placement(connection)
    if placement is None:
        return None
    try:
        return StoreAt.model_validate(placement.parameters)
    except ValidationError as malformed:
        raise MalformedRecord(f"placement store@{placement.machine}", first_fault(malformed)) from None


async def _store_placement(connection: AsyncConnection) -> Placement | None:
    placed = tables.placements
    row = (await connection.execute(select(placed).where(placed.c.module == "store", placed.c.ended_revision.is_(None)))).one_or_none()
    return None if row is None else _placement(row)


async def read_machine(connection: AsyncConnection, name: str) -> MachineView:
    """All about one machine. Raises ``UnknownMachine``, ``MalformedRecord``."""
    mesh = await read_mesh(connection)
    row = (await connection.execute(select(tables.machines).where(tables.machines.c.name == name))).one_or_none()
    if row is None:
        raise UnknownMachine(name, await machine_names(connection))
    machine = _machine(row)
    placed = tables.placements
    rows = (await connection.execute(select(placed).where(placed.c.machine == name).order_by(placed.c.id))).all()
    active = tuple(_placement(one) for one in rows if one.ended_revision is None)
    ended = {one.module: one.ended_revision for one in rows if one.ended_revision is not None}
    told = tables.declarations
    declared = (await connection.execute(select(told).where(told.c.machine == name).order_by(told.c.generation))).all()
    report = (await connection.execute(select(tables.reports).where(tables.reports.c.machine == name))).one_or_none()
    return MachineView(
        mesh=mesh,
        name=machine.name,
        address=machine.address,
        generation=row.generation,
        placements=tuple(sorted(active, key=lambda one: one.module)),
        store=await _store_placement(connection),
        ended=ended,
        declared=tuple(_declared(name, one) for one in declared),
        report=None if report is None else _report(name, report.report),
        heard="" if report is None else report.heard,
        pushed=row.pushed_revision,
    )


async def machines_ahead(connection: AsyncConnection) -> tuple[str, ...]:
    """Reports of what this store never declared, in words: it has lost some of its history, or is another mesh's."""
    mesh = await read_mesh(connection)
    joined = select(tables.reports, tables.machines.c.generation.label("known")).join(tables.machines)
    rows = (await connection.execute(joined.order_by(tables.reports.c.machine))).all()
    return tuple(
        f"{row.machine} reports generation {row.generation} of epoch {row.epoch}, this store knows up to {row.known} of epoch {mesh.epoch}"
        for row in rows
        if (row.epoch, row.generation) > (mesh.epoch, row.known)
    )


def first_fault(malformed: ValidationError) -> str:
    """The first thing that is wrong, without the value that is: it may be a secret."""
    first = malformed.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def _machine(row: Any) -> FoundedMachine:
    try:
        return FoundedMachine(name=row.name, address=row.address)
    except ValidationError as malformed:
        raise MalformedRecord(f"machine {row.name}", first_fault(malformed)) from None


def _placement(row: Any) -> Placement:
    record = f"placement {row.module}@{row.machine}"
    try:
        parameters = _TEXTS.validate_json(row.parameters)
    except ValidationError as malformed:
        raise MalformedRecord(record, f"its parameters: {first_fault(malformed)}") from None
    return Placement(row.module, row.machine, parameters, row.since_revision, row.since)


def _declared(machine: str, row: Any) -> Declared:
    record = f"declaration {row.generation} of {machine}"
    try:
        elements = _TEXTS.validate_json(row.elements)
        modules = {name: ModuleRests.model_validate(one) for name, one in json.loads(row.modules).items()}
    except (ValueError, AttributeError) as malformed:
        why = first_fault(malformed) if isinstance(malformed, ValidationError) else str(malformed)
        raise MalformedRecord(record, why) from None
    return Declared(row.epoch, row.generation, row.revision, row.told, elements, modules)


def _report(machine: str, text: str) -> Report:
    try:
        return Report.model_validate_json(text)
    except ValidationError as malformed:
        raise MalformedRecord(f"report of {machine}", first_fault(malformed)) from None
