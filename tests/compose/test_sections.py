"""What a compose may return: the sections that its annotation promises, whole and sound, or a refusal in its own words."""

from typing import Any

import pytest

from mesh_runtime import ContractError, Machine, ModuleRuntime, NoStore, Overlay, OverlayPeers, Refused, StoreReachableFrom, TrustStore
from mesh_runtime.contracts.composing import Composed
from mesh_runtime.runtime import ModuleRuntime as Plain
from mesh_runtime.testing.mesh import StandInMesh
from mesh_runtime.testing.stating import Failing
from tests.compose.hiding import FOUND_PEERS, FOUND_STORE
from tests.records import Records, said

OVERLAY = Overlay(address="10.77.0.1", peers=())


def unsound(**fields: Any) -> Overlay:
    """An overlay that nobody has checked."""
    return Overlay.model_construct(**fields)


class Wider(Overlay):
    """A section of the author's own making, under another's name."""

    secret: str = "more than was promised"


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "returned 1 sections, its annotation promises 2"),
        (OVERLAY, "returned 1 sections, its annotation promises 2"),
        ((OVERLAY,), "returned 1 sections, its annotation promises 2"),
        ([OVERLAY, NoStore()], "returned 1 sections, its annotation promises 2"),
        ((OVERLAY, None), "section registry-trust must be TrustStore or NoStore, not NoneType"),
        ((NoStore(), OVERLAY), "section overlay must be Overlay, not NoStore"),
        ((unsound(address=7, peers=()), NoStore()), "Overlay: address: Input should be a valid string, and is a number"),
        ((Wider(address="10.77.0.1", peers=()), NoStore()), "Overlay: secret: Extra inputs are not permitted"),
        (
            (OVERLAY, TrustStore.model_construct(kind="trust-store", address="http://x/", ca="")),
            "TrustStore: address: Value error, a store's",
        ),
    ],
)
async def test_what_the_annotation_does_not_promise_is_refused_in_words(
    mesh: StandInMesh, records: Records, returned: Any, words: str
) -> None:
    class Networking(ModuleRuntime):
        async def compose(self, machine: Machine) -> tuple[Overlay, TrustStore | NoStore]:
            return returned  # type: ignore[no-any-return]  # the mistake that is meant

    outcome = await mesh.compose(Networking)
    assert isinstance(outcome, Refused), outcome
    assert outcome.code == "wrong-sections"
    assert words in outcome.why
    assert said(records, "a compose returned what its annotation does not promise", module="networking")


async def test_an_authors_refusal_is_passed_on_as_it_is(mesh: StandInMesh) -> None:
    class Networking(ModuleRuntime):
        async def compose(self, machine: Machine) -> Overlay | Refused:
            return Refused(code="no-address", why=f"{machine.name} has none", again=False)

    assert await mesh.compose(Networking) == Refused(code="no-address", why="alpha has none", by="networking@alpha")


async def test_an_authors_own_words_stand_beside_what_went_unanswered(mesh: StandInMesh) -> None:
    class Networking(ModuleRuntime):
        async def compose(self, machine: Machine) -> Overlay | Refused:
            try:
                await self.ask(OverlayPeers(of=machine.name), StoreReachableFrom(machine=machine.name))
            except Exception as error:
                raise KeyError("the author's own") from error
            return OVERLAY

    outcome = await mesh.compose(Networking, answers={OverlayPeers: FOUND_PEERS, StoreReachableFrom: Failing.REFUSED})
    assert isinstance(outcome, Refused)
    assert [one.question for one in outcome.unanswered] == ["store-reachable-from(machine='alpha')"]
    assert 'KeyError: "the author\'s own"' in outcome.why


async def test_two_answers_to_one_question_are_both_told(mesh: StandInMesh) -> None:
    """The code may rest on the earlier one: whoever judges whether it has moved must see both."""

    class Networking(ModuleRuntime):
        async def compose(self, machine: Machine) -> Overlay:
            first = await self.ask(OverlayPeers(of=machine.name))
            await self.ask(OverlayPeers(of=machine.name))
            return Overlay(address=machine.address, peers=first.value)

    answers = iter([FOUND_PEERS, FOUND_PEERS.model_copy(update={"value": ()})])
    composed = await mesh.compose(Networking, answers={OverlayPeers: lambda _: next(answers), StoreReachableFrom: FOUND_STORE})
    assert isinstance(composed, Composed)
    assert len({one.fingerprint for one in composed.rested}) == 2


def test_a_compose_that_promises_nothing_sound_is_a_mistake_of_the_class() -> None:
    with pytest.raises(ContractError, match="must be `async def`"):
        type("A", (Plain,), {"compose": lambda self, machine: None})

    async def none(self: Any, machine: Machine):  # type: ignore[no-untyped-def]
        return None

    async def number(self: Any, machine: Machine) -> int:
        return 1

    async def twice(self: Any, machine: Machine) -> tuple[Overlay, Overlay]:
        return OVERLAY, OVERLAY

    async def mixed(self: Any, machine: Machine) -> Overlay | NoStore:
        return OVERLAY

    for compose, words in (
        (none, "no return annotation"),
        (number, "is no Section"),
        (twice, "one section twice"),
        (mixed, "must be of one section"),
    ):
        with pytest.raises(ContractError, match=words):
            type("A", (Plain,), {"compose": compose})
