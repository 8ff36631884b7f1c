"""Who is entitled to a grant, and who provides one: read from inventory and catalog together.

A placement takes effect when it is made, and its end by the push of its machine; until then what it was granted stays. A manifest that
cannot be read says nothing about what its module needs, and an inventory that has lost history nothing about who is not placed: both raise,
so that the question stays unanswered and nobody loses a grant by it.
"""

from collections.abc import Collection, Iterable, Iterator

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mesh_runtime.contracts import Identity
from mesh_runtime.contracts.granting import GrantTerms, Provider
from mesh_runtime_controller import tables
from mesh_runtime_controller.catalog import Catalog
from mesh_runtime_controller.placing import FOUNDED
from mesh_runtime_controller.records import machine_names, machines_ahead


class UnknownManifest(LookupError):
    """A module is placed and its manifest cannot be read now. The text says why."""


class LostHistory(Exception):
    """A host reports more than this inventory has declared: what it does not know may be so all the same. The text says which."""


async def is_placed(connection: AsyncConnection, identity: Identity, controller: Identity) -> bool:
    """Whether this placement is in force: made, and not ended by a push."""
    if identity.module == controller.module:
        return identity == controller
    if identity.module in FOUNDED:
        return identity.machine in await machine_names(connection)
    return identity in await _placed(connection)


async def recorded_key(connection: AsyncConnection, identity: Identity) -> str:
    """The public key that is recorded for it; empty: none."""
    keys = tables.keys
    of = keys.c.identity == str(identity), keys.c.ended_revision.is_(None)
    return (await connection.execute(select(keys.c.key).where(*of))).scalar_one_or_none() or ""


async def read_terms(
    connection: AsyncConnection, catalog: Catalog, consumer: Identity, resource: str, controller: Identity
) -> GrantTerms | None:
    """What holds for a grant of ``resource`` to ``consumer``; None: it is not placed, or does not need it.

    Raises ``UnknownManifest``, ``LostHistory``.
    """
    if not await is_placed(connection, consumer, controller):
        await _check_history(connection)
        return None
    if consumer.module not in catalog.manifests:
        raise UnknownManifest(f"{consumer} is placed: {catalog.missing(consumer.module)}")
    if resource not in catalog.manifests[consumer.module].needs:
        return None
    return GrantTerms(key=await recorded_key(connection, consumer))


async def read_providers(connection: AsyncConnection, catalog: Catalog) -> tuple[Provider, ...]:
    """Every placed provider with each type that it provides. What the founding placed provides nothing.

    Raises ``UnknownManifest``, ``LostHistory``.
    """
    placed = await _placed_and_known(connection, catalog)
    return tuple(sorted(_provided_by(placed, catalog), key=lambda one: (one.type, one.identity)))


async def read_listeners(connection: AsyncConnection, catalog: Catalog, controller: Identity) -> tuple[Identity, ...]:
    """Every placed runtime that is told something, those that the founding placed among them.

    Raises ``UnknownManifest``, ``LostHistory``.
    """
    placed = await _placed_and_known(connection, catalog)
    listening = {one for one in placed if catalog.manifests[one.module].told}
    founded = {controller, *(Identity("host", machine) for machine in await machine_names(connection))}
    return tuple(sorted(listening | founded, key=str))


async def provided_already(connection: AsyncConnection, catalog: Catalog, types: Collection[str]) -> tuple[Provider, ...]:
    """Placements not ended that provide one of ``types``. Raises ``UnknownManifest`` where one might, and its manifest cannot be read."""
    if not types:
        return ()
    placed = tables.placements
    rows = (await connection.execute(select(placed.c.module, placed.c.machine).where(placed.c.ended_revision.is_(None)))).all()
    standing = [Identity(row.module, row.machine) for row in rows]
    _check_known(standing, catalog)
    return tuple(one for one in _provided_by(standing, catalog) if one.type in types)


async def _check_history(connection: AsyncConnection) -> None:
    if ahead := await machines_ahead(connection):
        raise LostHistory("; ".join(ahead))


def _check_known(identities: Iterable[Identity], catalog: Catalog) -> None:
    """A question about all of them has no answer while one's manifest cannot be read."""
    if unknown := sorted({one.module for one in identities} - catalog.manifests.keys()):
        raise UnknownManifest("; ".join(catalog.missing(one) for one in unknown))


def _provided_by(identities: Iterable[Identity], catalog: Catalog) -> Iterator[Provider]:
    return (Provider(identity=str(one), type=kind) for one in identities for kind in catalog.manifests[one.module].provides)


async def _placed_and_known(connection: AsyncConnection, catalog: Catalog) -> set[Identity]:
    await _check_history(connection)
    placed = await _placed(connection)
    _check_known(placed, catalog)
    return placed


async def _placed(connection: AsyncConnection) -> set[Identity]:
    placed, machine = tables.placements, tables.machines
    standing = placed.c.ended_revision.is_(None) | (placed.c.ended_revision > machine.c.pushed_revision)
    rows = (await connection.execute(select(placed.c.module, placed.c.machine).join(machine).where(standing))).all()
    return {Identity(row.module, row.machine) for row in rows}
