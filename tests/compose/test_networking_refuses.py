"""Complete or refused: networking, its two lookups, and each way in which each of them can go unanswered, alone and in pairs.

Whatever the module's code does about it, the answer is a refusal that names all that was unanswered, never a declaration. Here without a
broker, as a module's author would test it; ``test_over_a_broker`` shows a good part of it on the wire.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pytest

from mesh_runtime import Found, Lookup, NoStore, Overlay, OverlayPeers, Reason, Refused, StoreReachableFrom, TrustStore, Unanswered
from mesh_runtime.contracts import Provision, StoreAt
from mesh_runtime.contracts.composing import Composed
from mesh_runtime.runtime import ModuleRuntime
from mesh_runtime.testing.mesh import StandInMesh, section_of
from mesh_runtime.testing.stating import Answering, Failing, Stated
from mesh_runtime_networking import Networking
from tests.compose.hiding import (
    ASKS_BOTH,
    ENDS_AT_THE_FIRST,
    FOUND_PEERS,
    FOUND_STORE,
    LEAVES_OPEN,
    NO_STORE,
    Careless,
    Executor,
    InnerTimeout,
    PlainThread,
    TaskOfAnEmptyContext,
    ThreadWithItsOwnLoop,
)

WAYS = (Failing.NOBODY, Failing.NEVER, Failing.REFUSED, Failing.ERROR, Failing.MALFORMED, Failing.LATE, Failing.SESSION_LOST)
REASONS = {
    Failing.NOBODY: Reason.NOBODY,
    Failing.NEVER: Reason.TIME_OUT,
    Failing.REFUSED: Reason.REFUSED,
    Failing.ERROR: Reason.REFUSED,
    Failing.MALFORMED: Reason.MALFORMED,
    Failing.LATE: Reason.LATE,
    Failing.SESSION_LOST: Reason.SESSION_LOST,
}
PEERS, STORE = "overlay-peers(of='alpha')", "store-reachable-from(machine='alpha')"
#: Each alone, and all pairs.
CASES: list[tuple[Answering, Answering]] = [
    *((way, FOUND_STORE) for way in WAYS),
    *((FOUND_PEERS, way) for way in WAYS),
    *product(WAYS, WAYS),
]
#: From threads and tasks that know nothing of the compose's own budget the first question waits longer than it lasts.
ONE_AFTER_THE_OTHER = (TaskOfAnEmptyContext, Executor, PlainThread, ThreadWithItsOwnLoop)
#: Seconds for a compose that waits for nothing.
BUDGET = 5.0
#: For one that waits for an answer which never comes: its question must be seen to end before it does, by a twentieth of this.
PATIENT = 3.0


def named(refused: Refused) -> dict[str, Reason]:
    return {one.question: one.reason for one in refused.unanswered}


def failing(peers: Answering, store: Answering) -> dict[str, Failing]:
    return {question: way for question, way in ((PEERS, peers), (STORE, store)) if isinstance(way, Failing)}


async def refused_by(mesh: StandInMesh, cls: type[ModuleRuntime], peers: Answering, store: Answering, budget: float = BUDGET) -> Refused:
    outcome = await mesh.compose(cls, answers={OverlayPeers: peers, StoreReachableFrom: store}, budget=budget)
    assert isinstance(outcome, Refused), f"a declaration was composed although {failing(peers, store)}: {outcome}"
    assert all(question in outcome.why for question in named(outcome))
    return outcome


@pytest.mark.parametrize("peers", [*WAYS, FOUND_PEERS])
async def test_each_lookup_failing_in_each_way_refuses_and_names_it_with_its_reason(mesh: StandInMesh, peers: Answering) -> None:
    async def one(store: Answering) -> None:
        refused = await refused_by(mesh, Networking, peers, store, PATIENT if Failing.NEVER in (peers, store) else BUDGET)
        reasons = named(refused)
        wanted = {question: REASONS[way] for question, way in failing(peers, store).items()}
        if Reason.SESSION_LOST in wanted.values():
            # The session takes both questions with it, unless the other one had ended before.
            assert wanted.keys() <= reasons.keys()
            assert Reason.SESSION_LOST in reasons.values()
        else:
            assert reasons == wanted
        assert refused.again
        assert refused.code == "unanswered"

    await asyncio.gather(*(one(store) for first, store in CASES if first is peers))


@pytest.mark.parametrize("cls", [*ASKS_BOTH, *LEAVES_OPEN])
async def test_code_that_hides_it_is_refused_all_the_same(mesh: StandInMesh, cls: type[Careless]) -> None:
    async def one(peers: Answering, store: Answering, budget: float = BUDGET) -> None:
        refused = await refused_by(mesh, cls, peers, store, budget)
        unanswered = failing(peers, store)
        if peers is Failing.NEVER and cls in ONE_AFTER_THE_OTHER:
            unanswered.pop(STORE, None)  # the compose ended before it was asked
        assert unanswered.keys() <= named(refused).keys(), f"{cls.__name__}: {failing(peers, store)}, but named are {refused.unanswered}"

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(len(CASES)))  # two cores would have six threads
    slow = [ways for ways in CASES if Failing.NEVER in ways]
    for ways in CASES:
        if ways not in slow:
            await one(*ways)
    await asyncio.gather(*(one(*ways, budget=PATIENT) for ways in slow))


@pytest.mark.parametrize("cls", ENDS_AT_THE_FIRST)
async def test_code_that_ends_otherwise_is_refused_for_the_unanswered_question(mesh: StandInMesh, cls: type[Careless]) -> None:
    for way in WAYS:
        refused = await refused_by(mesh, cls, way, FOUND_STORE)
        assert PEERS in named(refused), f"{cls.__name__}: {way}, but {refused}"
        assert refused.code == "unanswered"


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_a_coroutine_that_is_dropped_is_a_question_left_open(mesh: StandInMesh) -> None:
    class Dropping(Careless):
        async def heard(self, question: object) -> None:
            self.ask(question)  # type: ignore[call-overload]  # the mistake that is meant

    outcome = await mesh.compose(Dropping, answers={OverlayPeers: FOUND_PEERS, StoreReachableFrom: FOUND_STORE})
    assert isinstance(outcome, Refused)
    assert named(outcome) == {PEERS: Reason.OPEN, STORE: Reason.OPEN}


@pytest.mark.parametrize("cls", [Networking, *ASKS_BOTH])
async def test_the_same_code_composes_once_all_is_answered(mesh: StandInMesh, cls: type[ModuleRuntime]) -> None:
    if cls is InnerTimeout:  # its 20 ms may pass on a busy machine
        return
    composed = await mesh.compose(cls, answers={OverlayPeers: FOUND_PEERS, StoreReachableFrom: FOUND_STORE})
    assert isinstance(composed, Composed), composed
    assert [peer.machine for peer in section_of(composed, Overlay).peers] == ["beta"]
    assert section_of(composed, TrustStore).address == "store.mesh:5000"
    assert {one.question for one in composed.rested} == {PEERS, STORE}
    assert {one.by for one in composed.rested} == {"controller@stand-in"}


async def test_absent_is_a_fact_and_composes_without_a_store(mesh: StandInMesh) -> None:
    composed = await mesh.compose(Networking, answers={OverlayPeers: FOUND_PEERS, StoreReachableFrom: NO_STORE})
    assert isinstance(composed, Composed)
    assert section_of(composed, NoStore) == NoStore()
    assert {(one.question, one.outcome) for one in composed.rested} == {(PEERS, "found"), (STORE, "absent")}


async def test_asking_again_and_getting_an_answer_clears_it(mesh: StandInMesh) -> None:
    tries: list[object] = []

    def at_the_third(ask: object) -> Stated:
        tries.append(ask)
        return Failing.REFUSED if len(tries) < 3 else FOUND_STORE

    class Stubborn(Careless):
        async def heard(self, question: object) -> object:
            for _ in range(5):
                try:
                    return (await self.ask(question)).value  # type: ignore[call-overload]  # any question
                except Exception:  # noqa: BLE001 - what careless code does
                    await asyncio.sleep(0)
            return None

    composed = await mesh.compose(Stubborn, answers={OverlayPeers: FOUND_PEERS, StoreReachableFrom: at_the_third})
    assert isinstance(composed, Composed)
    assert len(tries) == 3


async def test_an_answer_does_not_excuse_a_later_asking_that_failed(mesh: StandInMesh) -> None:
    class Twice(Careless):
        async def compose(self, machine: object) -> tuple[Overlay, TrustStore | NoStore]:
            first = await self.ask(OverlayPeers(of="alpha"))
            try:
                await self.ask(OverlayPeers(of="alpha"))
            except Exception:  # noqa: BLE001 - what careless code does
                return Overlay(address="10.77.0.1", peers=first.value), NoStore()
            raise AssertionError

    answers: Iterator[Stated] = iter([FOUND_PEERS, Failing.REFUSED])
    outcome = await mesh.compose(Twice, answers={OverlayPeers: lambda _: next(answers)})
    assert isinstance(outcome, Refused)
    assert named(outcome) == {PEERS: Reason.REFUSED}


async def test_a_question_that_cannot_even_be_read_out_is_a_question_all_the_same(mesh: StandInMesh) -> None:
    class Mute:
        def __repr__(self) -> str:
            raise TypeError("nothing to be said of it")

    class Unspeakable(Careless):
        async def compose(self, machine: object) -> tuple[Overlay, TrustStore | NoStore]:
            peers = await self.ask(OverlayPeers(of="alpha"))
            try:
                await self.ask(StoreReachableFrom.model_construct(machine=Mute()))  # type: ignore[arg-type]  # the mistake that is meant
            except Exception:  # noqa: BLE001 - what careless code does
                return Overlay(address="10.77.0.1", peers=peers.value), NoStore()
            raise AssertionError

    outcome = await mesh.compose(Unspeakable, answers={OverlayPeers: FOUND_PEERS, StoreReachableFrom: FOUND_STORE})
    assert isinstance(outcome, Refused)
    assert named(outcome) == {"StoreReachableFrom": Reason.REFUSED}


async def test_identities_that_are_no_list_are_a_question_all_the_same(mesh: StandInMesh) -> None:
    class OfNobody(Careless):
        async def compose(self, machine: object) -> tuple[Overlay, TrustStore | NoStore]:
            try:
                await self.ask_each(StoreReachableFrom(machine="alpha"), of=None)  # type: ignore[arg-type]  # the mistake that is meant
            except Exception:  # noqa: BLE001 - what careless code does
                return Overlay(address="10.77.0.1", peers=()), NoStore()
            raise AssertionError

    outcome = await mesh.compose(OfNobody, answers={StoreReachableFrom: FOUND_STORE})
    assert isinstance(outcome, Refused)
    assert named(outcome) == {"StoreReachableFrom": Reason.REFUSED}


class StoreOrNot(Lookup[Found[StoreAt] | Refused], answered_by="controller"):
    """A lookup whose contract takes a refusal for an outcome, so that its asker may take one for a fact."""


class StoreGiven(Provision[Found[StoreAt] | Refused], answered_by="controller"):
    """One whose answerer may refuse: but the library's word that its handler failed is no refusal of its."""


@pytest.mark.parametrize("ask", [StoreOrNot, StoreGiven])
async def test_a_handler_that_failed_is_no_answer_whatever_the_contract_says(mesh: StandInMesh, ask: type[Any]) -> None:
    class TakesItForNone(Careless):
        async def compose(self, machine: object) -> tuple[Overlay, TrustStore | NoStore]:
            with contextlib.suppress(Unanswered):
                assert isinstance(await self.ask(ask()), Refused)
            return Overlay(address="10.77.0.1", peers=()), NoStore()

    outcome = await mesh.compose(TakesItForNone, answers={ask: Failing.ERROR})
    assert isinstance(outcome, Refused)
    assert named(outcome) == {f"{ask.contract}()": Reason.REFUSED}
