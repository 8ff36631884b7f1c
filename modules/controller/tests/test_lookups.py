"""Lookups: found or absent with the inventory's revision, or an error that names the record. What cannot be read is never *absent*. K6."""

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from mesh_runtime.contracts import Absent, Found, OverlayPeers, Peer, StoreAt, StoreReachableFrom
from mesh_runtime.testing.ca import CertificateAuthority
from mesh_runtime_controller.records import MalformedRecord, UnknownMachine

if TYPE_CHECKING:
    from conftest import Desk

CA = CertificateAuthority("store's CA").certificate.decode()


async def sql(desk: "Desk", statement: str, **values: Any) -> None:
    async with desk.controller.store.write() as connection:
        await connection.execute(text(statement), values)


async def test_peers_are_all_other_machines_with_the_revision(desk: "Desk") -> None:
    found = await desk.controller.overlay_peers(OverlayPeers(of="beta"))
    assert found == Found(value=(Peer(machine="alpha", address="10.0.0.1"),), revision=1)


async def test_a_store_that_is_not_placed_is_absent(desk: "Desk") -> None:
    assert await desk.controller.store_reachable_from(StoreReachableFrom(machine="beta")) == Absent(revision=1)


async def test_a_placed_store_is_found_from_every_machine_and_absent_once_removed(desk: "Desk") -> None:
    await desk.place("store", "alpha", address="alpha.mesh:5000", ca=CA)
    found = await desk.controller.store_reachable_from(StoreReachableFrom(machine="beta"))
    assert found == Found(value=StoreAt(address="alpha.mesh:5000", ca=CA), revision=2)
    await desk.remove("store")
    assert await desk.controller.store_reachable_from(StoreReachableFrom(machine="beta")) == Absent(revision=3)


async def test_an_unknown_machine_is_an_error_that_names_the_known_ones(desk: "Desk") -> None:
    with pytest.raises(UnknownMachine, match="'gamma'; it has alpha, beta"):
        await desk.controller.overlay_peers(OverlayPeers(of="gamma"))
    with pytest.raises(UnknownMachine, match="'gamma'"):
        await desk.controller.store_reachable_from(StoreReachableFrom(machine="gamma"))


@pytest.mark.parametrize("parameters", ["{", "[]", "{}", '{"address": "alpha:99999", "ca": "x"}', '{"address": 7, "ca": "x"}'])
async def test_b41_a_malformed_record_of_the_store_raises_and_is_not_absent(desk: "Desk", parameters: str) -> None:
    """Held by: ``MalformedRecord`` in ``read_store`` and ``_placement``."""
    await desk.place("store", "alpha", address="alpha.mesh:5000", ca=CA)
    await sql(desk, "UPDATE placements SET parameters = :p", p=parameters)
    with pytest.raises(MalformedRecord, match="placement store@alpha"):
        await desk.controller.store_reachable_from(StoreReachableFrom(machine="beta"))


async def test_b41_a_malformed_machine_makes_no_shorter_list_of_peers(desk: "Desk") -> None:
    """Held by: ``_machine`` in ``read_peers``."""
    await sql(desk, "UPDATE machines SET address = 'nowhere' WHERE name = 'beta'")
    with pytest.raises(MalformedRecord, match="machine beta"):
        await desk.controller.overlay_peers(OverlayPeers(of="alpha"))


async def test_b21_an_unreadable_store_raises_and_is_not_absent(desk: "Desk") -> None:
    await sql(desk, "ALTER TABLE placements RENAME TO elsewhere")
    with pytest.raises(SQLAlchemyError):
        await desk.controller.store_reachable_from(StoreReachableFrom(machine="beta"))
