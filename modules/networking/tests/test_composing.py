"""What networking composes: all that the mesh means, or a refusal that names what went unanswered."""

from typing import Any

import pytest

from mesh_runtime import Absent, Found, Machine, NoStore, Overlay, OverlayPeers, Peer, StoreAt, StoreReachableFrom, TrustStore
from mesh_runtime.contracts import Ask, Refused
from mesh_runtime.testing.mesh import StandInMesh, section_of
from mesh_runtime.testing.stating import Answering, Failing
from mesh_runtime_networking import Networking

ALPHA = Machine(name="alpha", address="10.77.0.1")
PEERS = (Peer(machine="beta", address="10.77.0.2"), Peer(machine="gamma", address="10.77.0.3"))
ANSWERED: dict[type[Ask[Any]], Answering] = {
    OverlayPeers: Found(value=PEERS, revision=4),
    StoreReachableFrom: Found(value=StoreAt(address="store.mesh:5000", ca="a CA"), revision=4),
}


async def test_the_overlay_and_the_trust_are_composed_from_what_was_answered(mesh: StandInMesh) -> None:
    composed = await mesh.compose(Networking, ALPHA, answers=ANSWERED)
    assert section_of(composed, Overlay) == Overlay(address="10.77.0.1", peers=PEERS)
    assert section_of(composed, TrustStore) == TrustStore(address="store.mesh:5000", ca="a CA")
    assert sorted(mesh.asked, key=str) == sorted([OverlayPeers(of="alpha"), StoreReachableFrom(machine="alpha")], key=str)


async def test_a_mesh_without_a_store_is_composed_as_one(mesh: StandInMesh) -> None:
    composed = await mesh.compose(Networking, ALPHA, answers={**ANSWERED, StoreReachableFrom: Absent(revision=4)})
    assert section_of(composed, NoStore) == NoStore()
    assert section_of(composed, Overlay).peers == PEERS


async def test_a_machine_alone_in_its_mesh_has_an_overlay_without_peers(mesh: StandInMesh) -> None:
    composed = await mesh.compose(Networking, ALPHA, answers={**ANSWERED, OverlayPeers: Found(value=(), revision=1)})
    assert section_of(composed, Overlay) == Overlay(address="10.77.0.1", peers=())


@pytest.mark.parametrize("failing", [Failing.NOBODY, Failing.REFUSED, Failing.MALFORMED])
async def test_what_went_unanswered_refuses_the_whole_and_is_named(mesh: StandInMesh, failing: Failing) -> None:
    """All ways of failing, alone and in pairs, stand with the library's own tests; here that the module hides none."""
    refused = await mesh.compose(Networking, ALPHA, answers={**ANSWERED, OverlayPeers: failing, StoreReachableFrom: failing})
    assert isinstance(refused, Refused)
    assert refused.again
    assert {one.question.partition("(")[0] for one in refused.unanswered} == {"overlay-peers", "store-reachable-from"}
