"""The stand-in mesh runs the library's own parts: what is answered composes, what is unanswered in any way refuses and is named."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from mesh_runtime import (
    Absent,
    Database,
    DatabaseAccess,
    File,
    Files,
    Found,
    ModuleRuntime,
    OverlayPeers,
    Peer,
    Reason,
    Refused,
    StoreAt,
    StoreReachableFrom,
    granted,
)
from mesh_runtime.contracts import Composed, Machine
from mesh_runtime.testing.mesh import NotStated, StandInMesh, section_of
from mesh_runtime.testing.stating import Answering, CannotBe, Failing, Twice

PEERS: Found[tuple[Peer, ...]] = Found(value=(Peer(machine="beta", address="10.77.0.2"),), revision=4)
STORE: Found[StoreAt] = Found(value=StoreAt(address="store.mesh:5000", ca="PEM"), revision=4)


class Motd(ModuleRuntime):
    """Composes a file from two lookups."""

    prepared = False

    async def prepare(self) -> None:
        self.prepared = True

    async def compose(self, machine: Machine) -> Files | Refused:
        assert self.prepared
        peers, store = await self.ask(OverlayPeers(of=machine.name), StoreReachableFrom(machine=machine.name))
        where = "no store" if isinstance(store, Absent) else store.value.address
        return Files(files=(File(path="/etc/motd", content=f"{len(peers.value)} peers, {where}"),))


class Careless(Motd):
    """Takes every error for *nothing there*."""

    module = "careless"

    async def compose(self, machine: Machine) -> Files:
        answers = await asyncio.gather(
            self.ask(OverlayPeers(of=machine.name)), self.ask(StoreReachableFrom(machine=machine.name)), return_exceptions=True
        )
        return Files(files=(File(path="/etc/motd", content=f"{len(answers)}"),))


async def test_what_is_answered_composes(mesh: StandInMesh) -> None:
    composed = await mesh.compose(Motd, answers={OverlayPeers: PEERS, StoreReachableFrom: STORE})
    assert section_of(composed, Files).files[0].content == "1 peers, store.mesh:5000"
    assert isinstance(composed, Composed)
    assert {one.by for one in composed.rested} == {"controller@stand-in"}
    assert mesh.asked == [OverlayPeers(of="alpha"), StoreReachableFrom(machine="alpha")]


async def test_absent_is_an_answer(mesh: StandInMesh) -> None:
    composed = await mesh.compose(Motd, answers={OverlayPeers: PEERS, StoreReachableFrom: Absent(revision=4)})
    assert section_of(composed, Files).files[0].content == "1 peers, no store"


@pytest.mark.parametrize("cls", [Motd, Careless])
@pytest.mark.parametrize(
    ("failing", "reason"),
    [
        (Failing.NOBODY, Reason.NOBODY),
        (Failing.NEVER, Reason.TIME_OUT),
        (Failing.REFUSED, Reason.REFUSED),
        (Failing.ERROR, Reason.REFUSED),
        (Failing.MALFORMED, Reason.MALFORMED),
        (Failing.LATE, Reason.LATE),
        (Failing.SESSION_LOST, Reason.SESSION_LOST),
        (b'{"outcome": "found", "revision": 1, "value": {"address": "not an address", "ca": ""}}', Reason.MALFORMED),
    ],
)
async def test_each_way_of_failing_refuses_and_is_named(
    mesh: StandInMesh, cls: type[ModuleRuntime], failing: Answering, reason: Reason
) -> None:
    refused = await mesh.compose(
        cls, answers={OverlayPeers: PEERS, StoreReachableFrom: failing}, budget=0.5 if reason is Reason.TIME_OUT else 5.0
    )
    assert isinstance(refused, Refused)
    assert [(one.question, one.reason) for one in refused.unanswered] == [("store-reachable-from(machine='alpha')", reason)]


async def test_two_that_fail_are_both_named(mesh: StandInMesh) -> None:
    refused = await mesh.compose(Careless, answers={OverlayPeers: Failing.MALFORMED, StoreReachableFrom: Failing.NOBODY})
    assert isinstance(refused, Refused)
    assert {(one.question.partition("(")[0], one.reason) for one in refused.unanswered} == {
        ("overlay-peers", Reason.MALFORMED),
        ("store-reachable-from", Reason.NOBODY),
    }


async def test_a_second_answer_changes_nothing(mesh: StandInMesh) -> None:
    answers: dict[type, Answering] = {OverlayPeers: PEERS, StoreReachableFrom: Twice(STORE, Absent(revision=9))}
    composed = await mesh.compose(Motd, answers=answers)
    assert section_of(composed, Files).files[0].content == "1 peers, store.mesh:5000"


async def test_an_answer_can_depend_on_the_ask(mesh: StandInMesh) -> None:
    def store(ask: StoreReachableFrom) -> Answering:
        return STORE if ask.machine == "beta" else Failing.NOBODY

    machine = Machine(name="beta", address="10.77.0.2")
    assert isinstance(
        await mesh.compose(Motd, machine, answers={OverlayPeers: PEERS, StoreReachableFrom: cast("Answering", store)}), Composed
    )
    assert isinstance(await mesh.compose(Motd, answers={OverlayPeers: PEERS, StoreReachableFrom: cast("Answering", store)}), Refused)


async def test_what_the_module_asks_beside_is_told_to_the_test(mesh: StandInMesh) -> None:
    with pytest.raises(NotStated, match=r"Motd asked store-reachable-from\.1"):
        await mesh.compose(Motd, answers={OverlayPeers: PEERS})


async def test_what_cannot_be_is_refused_with_all_reasons(mesh: StandInMesh) -> None:
    with pytest.raises(CannotBe, match=r"OverlayPeers: its outcome cannot be Absent, only Found; StoreReachableFrom: .* Composed"):
        await mesh.compose(
            Motd,
            answers={OverlayPeers: Absent(revision=1), StoreReachableFrom: Composed(sections=(), rested=(), version="1")},
        )


class Shop(ModuleRuntime):
    """Composes a file from what it was granted."""

    @granted(Database(name="shop"))
    async def pool(self, access: DatabaseAccess) -> AsyncIterator[dict[str, str]]:
        yield {"alpha": f"of {access.user}, which is entered by nobody here"}

    async def compose(self, machine: Machine) -> Files:
        return Files(files=(File(path="/etc/prices", content=self.pool[machine.name]),))


async def test_what_a_module_is_granted_is_stated(mesh: StandInMesh) -> None:
    composed = await mesh.compose(Shop, granted={"pool": {"alpha": "42"}})
    assert section_of(composed, Files).files[0].content == "42"


async def test_what_it_is_granted_and_nobody_stated_is_named(mesh: StandInMesh) -> None:
    refused = await mesh.compose(Shop)
    assert isinstance(refused, Refused)
    assert "NotGranted: Shop.pool (database.1/shop) cannot be read: it is not granted yet" in refused.why


async def test_a_grant_that_the_module_does_not_have_cannot_be_stated(mesh: StandInMesh) -> None:
    with pytest.raises(CannotBe, match="Shop has no @granted method pond: it has pool"):
        await mesh.compose(Shop, granted={"pond": 1})
    with pytest.raises(CannotBe, match="Motd has no @granted method pool: it has none"):
        await mesh.compose(Motd, granted={"pool": 1})
