"""What operators said, recorded: placements and the keys of placements. Each change is one transaction, and one revision.

A key belongs to its placement: it stays through other parameters, and is forgotten when a placement whose end has taken effect is made
anew. Another key for a placement that has one is refused, since whoever presents it may be somebody else; ``rekey`` is the operator's word
that it is not.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mesh_runtime.contracts import Identity, Refused
from mesh_runtime.contracts.operating import Placed, Rekeyed, Removed
from mesh_runtime_controller import tables
from mesh_runtime_controller.catalog import Catalog
from mesh_runtime_controller.changes import next_revision, unknown_machines
from mesh_runtime_controller.entitling import UnknownManifest, is_placed, provided_already, recorded_key
from mesh_runtime_controller.placing import FOUNDED
from mesh_runtime_controller.records import read_mesh
from mesh_runtime_controller.store import Store


@dataclass(frozen=True, slots=True)
class NewPlacement:
    """What is to be recorded, checked. ``key`` is empty where the operator gave none."""

    identity: Identity
    parameters: Mapping[str, str]
    key: str = ""


async def place(store: Store, new: NewPlacement, catalog: Catalog, controller: Identity, moment: str) -> Placed | Refused:
    """Record a placement; other parameters end the old row and begin a new one. What the founding placed has no row.

    Refused: unknown machine, seat taken, provided twice, another key than the recorded one.
    """
    async with store.write() as connection:
        if (refused := await unknown_machines(connection, (new.identity.machine,))) is not None:
            return refused
        founded = new.identity.module in FOUNDED
        old = await _row_of(connection, new.identity)
        known = await recorded_key(connection, new.identity)
        stands = await is_placed(connection, new.identity, controller)
        if stands and known and new.key not in ("", known):
            return _other_key(new.identity, known, new.key)
        key = new.key or (known if stands else "")
        same = founded or (old is not None and old.parameters == _json(new.parameters))
        if same and key == known:
            return Placed(revision=(await read_mesh(connection)).revision, changed=False)
        if old is None and not founded and (refused := await _taken(connection, new.identity, catalog)) is not None:
            return refused
        revision = await next_revision(connection)
        if not same:
            await _end(connection, new.identity, revision, moment)
            values = {"parameters": _json(new.parameters), "seat": catalog.manifests[new.identity.module].seat}
            begun = {"module": new.identity.module, "machine": new.identity.machine, "since_revision": revision, "since": moment}
            await connection.execute(insert(tables.placements).values(**begun, **values))
        if key != known:
            await _record_key(connection, new.identity, key, revision, moment)
    return Placed(revision=revision, changed=True)


async def end_placement(store: Store, identity: Identity, moment: str) -> Removed | Refused:
    """End a placement. Refused: unknown machine, not placed."""
    async with store.write() as connection:
        if (refused := await unknown_machines(connection, (identity.machine,))) is not None:
            return refused
        if await _row_of(connection, identity) is None:
            return Refused(code="not-placed", why=f"{identity} is not placed, so there is nothing to end")
        revision = await next_revision(connection)
        await _end(connection, identity, revision, moment)
    return Removed(revision=revision)


async def rekey(store: Store, identity: Identity, key: str, controller: Identity, moment: str) -> Rekeyed | Refused:
    """Record ``key`` in place of what is recorded, or nothing if it is empty. Refused: unknown machine, not placed."""
    async with store.write() as connection:
        if (refused := await unknown_machines(connection, (identity.machine,))) is not None:
            return refused
        if not await is_placed(connection, identity, controller):
            return Refused(code="not-placed", why=f"{identity} is not placed, so it has no key")
        if await recorded_key(connection, identity) == key:
            return Rekeyed(revision=(await read_mesh(connection)).revision, changed=False, key=key)
        revision = await next_revision(connection)
        await _record_key(connection, identity, key, revision, moment)
    return Rekeyed(revision=revision, changed=True, key=key)


async def _taken(connection: AsyncConnection, identity: Identity, catalog: Catalog) -> Refused | None:
    """The refusal of a placement that takes what has one holder in a mesh: a seat, a type of resource."""
    placed, manifest = tables.placements, catalog.manifests[identity.module]
    if manifest.seat is not None:
        of = placed.c.seat == manifest.seat, placed.c.ended_revision.is_(None)
        holder = (await connection.execute(select(placed).where(*of))).one_or_none()
        if holder is not None:
            why = f"the seat {manifest.seat!r} has one holder in a mesh, and {holder.module}@{holder.machine} holds it: remove that first"
            return Refused(code="seat-taken", why=why)
    try:
        others = await provided_already(connection, catalog, manifest.provides)
    except UnknownManifest as unknown:
        return Refused(code="unknown-module", why=f"whether what {identity} provides is provided already cannot be said: {unknown}")
    if others:
        words = ", ".join(f"{one.type} by {one.identity}" for one in others)
        why = f"{identity} provides what is provided already, and each type has one provider in a mesh: {words}; remove that first"
        return Refused(code="provided-twice", why=why)
    return None


async def _row_of(connection: AsyncConnection, identity: Identity) -> Any:
    placed = tables.placements
    return (await connection.execute(select(placed).where(*_standing(identity)))).one_or_none()


def _standing(identity: Identity) -> tuple[ColumnElement[bool], ...]:
    placed = tables.placements
    return placed.c.module == identity.module, placed.c.machine == identity.machine, placed.c.ended_revision.is_(None)


async def _end(connection: AsyncConnection, identity: Identity, revision: int, moment: str) -> None:
    await connection.execute(update(tables.placements).where(*_standing(identity)).values(ended_revision=revision, ended=moment))


async def _record_key(connection: AsyncConnection, identity: Identity, key: str, revision: int, moment: str) -> None:
    keys, who = tables.keys, str(identity)
    old = keys.c.identity == who, keys.c.ended_revision.is_(None)
    await connection.execute(update(keys).where(*old).values(ended_revision=revision, ended=moment))
    if key:
        await connection.execute(insert(keys).values(identity=who, key=key, since_revision=revision, since=moment))


def _other_key(identity: Identity, known: str, given: str) -> Refused:
    why = (
        f"{identity} is placed with the key {known}, and {given} is another; if the first is lost, or is to be used no longer: "
        f"mesh rekey {identity}"
    )
    return Refused(code="other-key", why=why)


def _json(texts: Mapping[str, str]) -> str:
    return json.dumps(dict(texts), sort_keys=True)
