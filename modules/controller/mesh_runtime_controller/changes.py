"""Changes of what was done and what was reported: each one transaction that compares at the moment of writing what it rests on.

What operators said is changed in ``placements``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from mesh_runtime.contracts import Refused, Report, SignedDeclaration
from mesh_runtime_controller import tables
from mesh_runtime_controller.records import (
    MachineView,
    ModuleRests,
    UnknownMachine,
    machine_names,
    machines_ahead,
    read_machine,
    read_mesh,
)
from mesh_runtime_controller.store import Store


class Moved(Exception):
    """What a declaration was composed from is no longer so; the text says what moved."""


class StoreBehind(Exception):
    """A host reports more than this store has declared; the text says which."""


@dataclass(frozen=True, slots=True)
class NewDeclaration:
    """A signed declaration, as it is stored before it is told."""

    signed: SignedDeclaration
    generation: int
    elements: Mapping[str, str]
    modules: Mapping[str, ModuleRests]


async def unknown_machines(connection: AsyncConnection, names: tuple[str, ...]) -> Refused | None:
    """The refusal that names machines which the inventory does not hold, and those that it does."""
    known = await machine_names(connection)
    unknown = sorted(set(names) - set(known))
    if not unknown:
        return None
    return Refused(code="unknown-machine", why=f"the mesh has no machine {', '.join(unknown)}; it has {', '.join(known)}")


async def store_declaration(store: Store, view: MachineView, new: NewDeclaration, moment: str) -> None:
    """Store a declaration as the next generation, if nothing moved since ``view`` was read. Raises ``Moved``, ``StoreBehind``."""
    async with store.write() as connection:
        if ahead := await machines_ahead(connection):
            raise StoreBehind("; ".join(ahead))
        now = await read_machine(connection, view.name)
        if now.mesh != view.mesh:
            raise Moved(f"the inventory went from revision {view.mesh.revision} to {now.mesh.revision}")
        if now.generation != new.generation - 1:
            raise Moved(f"{view.name} is at generation {now.generation}, not {new.generation - 1}")
        if now.held() != view.held():
            raise Moved(f"{view.name} reported something else meanwhile")
        machine = tables.machines
        await connection.execute(update(machine).where(machine.c.name == view.name).values(generation=new.generation))
        await connection.execute(
            insert(tables.declarations).values(
                machine=view.name,
                generation=new.generation,
                epoch=view.mesh.epoch,
                revision=view.mesh.revision,
                statement=new.signed.statement,
                signature=new.signed.signature,
                elements=_json(new.elements),
                modules=json.dumps({name: one.model_dump(mode="json") for name, one in new.modules.items()}),
                stored=moment,
                told="stored",
            )
        )


async def mark_told(store: Store, machine: str, generation: int, told: str) -> None:
    """Record how telling a declaration ended: ``told``, ``not-sent`` or ``unknown``; a host's refusal that came meanwhile stays."""
    row = tables.declarations
    of = row.c.machine == machine, row.c.generation == generation, row.c.told == "stored"
    async with store.write() as connection:
        await connection.execute(update(row).where(*of).values(told=told))


async def mark_pushed(store: Store, machine: str, revision: int) -> None:
    """What was said up to ``revision`` has taken effect on this machine; a later one that is recorded stays."""
    row = tables.machines
    async with store.write() as connection:
        of = row.c.name == machine, row.c.pushed_revision < revision
        await connection.execute(update(row).where(*of).values(pushed_revision=revision))


async def record_report(store: Store, report: Report, moment: str) -> bool:
    """Keep what a machine reported as facts; returns whether it was news. Raises ``UnknownMachine``, ``ForeignReport``.

    A refusal tells that its declaration was not taken, and nothing of what stands; nor does a failure that names no element. A report older
    than what is known, by its generation or by its number within that, is no news either.
    """
    number = report.epoch, report.generation, report.number
    async with store.write() as connection:
        mesh, known_machines = await read_mesh(connection), await machine_names(connection)
        if report.mesh != mesh.mesh and not (report.mesh == "" and (number[:2] == (0, 0) or report.verdict == "refused")):
            raise ForeignReport(f"a report of {report.machine} is of the mesh {report.mesh!r}, this is {mesh.mesh!r}")
        if report.machine not in known_machines:
            raise UnknownMachine(report.machine, known_machines)
        if report.verdict == "refused":
            row = tables.declarations
            of = row.c.machine == report.machine, row.c.epoch == report.epoch, row.c.generation == report.generation
            await connection.execute(update(row).where(*of).values(told="refused"))
            return True
        if report.verdict == "failed" and not report.elements:
            return True
        row = tables.reports
        newest = select(row.c.epoch, row.c.generation, row.c.number).where(row.c.machine == report.machine)
        known = (await connection.execute(newest)).one_or_none()
        if known is not None and number < tuple(known):
            return False
        values = {**report.model_dump(include={"epoch", "generation", "number"}), "report": report.model_dump_json(), "heard": moment}
        made = upsert(row).values(machine=report.machine, **values)
        await connection.execute(made.on_conflict_do_update(index_elements=["machine"], set_=values))
    return True


class ForeignReport(Exception):
    """A report is not this mesh's, or was told by somebody else than the machine's host."""


async def record_refusal(store: Store, machine: str, refused: Refused, moment: str) -> str:
    """List a refusal that stands; returns since when one of its code does."""
    row = tables.refusals
    async with store.write() as connection:
        known = (await connection.execute(select(row.c.code, row.c.since).where(row.c.machine == machine))).one_or_none()
        since = str(known.since) if known is not None and known.code == refused.code else moment
        values = {"code": refused.code, "refused": refused.model_dump_json(), "since": since, "last": moment}
        await connection.execute(
            upsert(row).values(machine=machine, **values).on_conflict_do_update(index_elements=["machine"], set_=values)
        )
    return since


async def clear_refusal(store: Store, machine: str) -> None:
    """The machine is no longer refused."""
    row = tables.refusals
    async with store.write() as connection:
        await connection.execute(row.delete().where(row.c.machine == machine))


async def next_revision(connection: AsyncConnection) -> int:
    """Count one change of intent."""
    row = tables.mesh
    await connection.execute(update(row).values(revision=row.c.revision + 1))
    return (await read_mesh(connection)).revision


def _json(texts: Mapping[str, str]) -> str:
    return json.dumps(dict(texts), sort_keys=True)
