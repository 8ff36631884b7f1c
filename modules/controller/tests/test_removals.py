"""Nothing is removed by being left out: each removal has its evidence, or the machine is refused. Field cases B41, B43; K11."""

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh_runtime import SendUnknown
from mesh_runtime.contracts import ElementReport, NoStore, Refused, Report, Rested, TrustStore
from mesh_runtime.testing.ca import CertificateAuthority
from mesh_runtime_controller.composing import ComposedMachine
from mesh_runtime_controller.records import Declared, MachineView, Mesh, ModuleRests, Placement, read_machine, read_mesh, read_store
from mesh_runtime_controller.removing import removals

if TYPE_CHECKING:
    from conftest import Desk

CA = CertificateAuthority("store's CA").certificate.decode()
ONE, TWO = "files/motd/etc/one", "files/motd/etc/two"


def rested(outcome: Any, question: str = "q()") -> Rested:
    return Rested(question=question, outcome=outcome, by="x@alpha", revision=5, fingerprint=outcome)


@pytest.fixture
async def two_files(desk: "Desk", write: Any) -> "Desk":
    """``motd`` has put two files on alpha, on the strength of an answer that was found."""
    desk.module("motd", write.composed(write.files("/etc/one", "/etc/two"), rested=(rested("found"),)))
    await desk.place("motd", "alpha")
    assert (await desk.push())["alpha"].verdict == "in-force"
    return desk


def removed(desk: "Desk") -> dict[str, str]:
    return {one.element: one.evidence for one in desk.hosts["alpha"].taken[-1].removes}


async def test_b43_what_is_only_missing_is_held_and_every_element_named(two_files: "Desk", write: Any) -> None:
    """Held by: ``unexplained`` in ``removing.py``."""
    two_files.module("motd", write.composed(write.files(), rested=(rested("found"),)))
    outcome = (await two_files.push())["alpha"]
    assert outcome.refused is not None
    assert outcome.refused.code == "unexplained-removal"
    assert f"2 of the 2 elements that alpha holds would go, and nothing says that they should: {ONE}, {TWO}" in outcome.why
    assert f"mesh push --remove {ONE} --remove {TWO}" in outcome.why
    assert len(two_files.hosts["alpha"].taken) == 1


async def test_b43_as_before_again_it_is_unchanged(two_files: "Desk", write: Any) -> None:
    motd = two_files.controller.modules["motd"]
    two_files.module("motd", write.composed(write.files()))
    await two_files.push()
    two_files.controller.modules["motd"] = motd
    assert (await two_files.push())["alpha"].verdict == "unchanged"


async def test_b41_an_answer_that_became_absent_is_evidence(two_files: "Desk", write: Any) -> None:
    two_files.module("motd", write.composed(write.files("/etc/one"), rested=(rested("absent"),)))
    outcome = (await two_files.push())["alpha"]
    assert outcome.verdict == "in-force"
    assert removed(two_files) == {TWO: "absent"}
    assert {one.element: one.state for one in outcome.elements} == {ONE: "in-force", TWO: "removed"}


async def test_an_answer_that_was_absent_all_along_explains_no_removal(two_files: "Desk", write: Any) -> None:
    """Held by: ``were_absent``."""
    absent = (rested("absent"),)
    two_files.module("motd", write.composed(write.files("/etc/one", "/etc/two", "/etc/three"), rested=absent))
    assert (await two_files.push())["alpha"].verdict == "in-force"
    two_files.module("motd", write.composed(write.files("/etc/one"), rested=absent))
    assert (await two_files.push())["alpha"].refused.code == "unexplained-removal"  # type: ignore[union-attr]


async def test_the_operators_word_is_evidence_for_what_it_names_alone(two_files: "Desk", write: Any) -> None:
    two_files.module("motd", write.composed(write.files()))
    outcome = (await two_files.push(remove=(TWO,)))["alpha"]
    assert outcome.refused is not None
    assert f"1 of the 2 elements that alpha holds would go, and nothing says that they should: {ONE};" in outcome.why
    assert (await two_files.push(remove=(TWO, ONE)))["alpha"].verdict == "in-force"
    assert removed(two_files) == {ONE: "operator", TWO: "operator"}


async def test_the_operators_word_on_what_is_composed_or_held_nowhere_is_refused(two_files: "Desk") -> None:
    assert (await two_files.push(remove=(ONE,)))["alpha"].refused.code == "still-composed"  # type: ignore[union-attr]
    refused = await two_files.push_refused(remove=("files/motd/etc/nowhere",))
    assert refused.code == "unknown-element"


async def test_an_ended_placement_takes_its_elements_with_it(two_files: "Desk") -> None:
    await two_files.remove("motd")
    outcome = (await two_files.push())["alpha"]
    assert outcome.verdict == "in-force"
    assert removed(two_files) == {ONE: "placement-ended", TWO: "placement-ended"}
    assert (await two_files.push_refused()).code == "nothing-to-do"


async def test_changed_parameters_and_another_version_are_evidence(two_files: "Desk", write: Any) -> None:
    two_files.module("motd", write.composed(write.files("/etc/one")))
    await two_files.place("motd", "alpha", colour="red")
    assert (await two_files.push())["alpha"].verdict == "in-force"
    assert removed(two_files) == {TWO: "operator"}
    two_files.module("motd", write.composed(write.files("/etc/four"), version="2"))
    assert (await two_files.push())["alpha"].verdict == "in-force"
    assert removed(two_files) == {ONE: "module-version"}


async def test_a_store_that_is_truly_absent_is_carried_out(desk: "Desk", write: Any) -> None:
    """The counterpart of K11: a genuine absence takes effect."""
    desk.module("net", write.composed(TrustStore(address="s:1", ca="x"), rested=(rested("found"),)), sections=("registry-trust",))
    await desk.place("net", "alpha")
    await desk.push()
    assert list(desk.hosts["alpha"].held) == ["registry-trust/net/s:1"]
    desk.module("net", write.composed(NoStore(), rested=(rested("absent"),)), sections=("registry-trust",))
    assert (await desk.push())["alpha"].verdict == "in-force"
    assert removed(desk) == {"registry-trust/net/s:1": "absent"}
    assert desk.hosts["alpha"].held == {}


def where(address: str) -> Rested:
    question = "store-reachable-from(machine='alpha')"
    return Rested(question=question, outcome="found", by="controller@alpha", revision=0, fingerprint=address)


@pytest.fixture
async def trusting(desk: "Desk", write: Any) -> "Desk":
    """``net`` has put the trust in the store s:1 on alpha; the store stands on beta."""
    await desk.place("store", "beta", address="s:1", ca=CA)
    desk.module("net", lambda _: write.composed(TrustStore(address="s:1", ca=CA)), sections=("registry-trust",))
    await desk.place("net", "alpha")

    async def composing(machine: Any) -> Any:
        async with desk.controller.store.read() as connection:
            at, mesh = await read_store(connection, machine.name), await read_mesh(connection)
        assert at is not None
        told = where(f"{at.address} {at.ca}").model_copy(update={"revision": mesh.revision})
        return write.composed(TrustStore(address=at.address, ca=at.ca), rested=(told,))

    desk.controller.modules["net"] = composing
    assert (await desk.push("alpha"))["alpha"].verdict == "in-force"
    return desk


async def test_a_store_that_the_operator_moved_takes_its_old_trust_away(trusting: "Desk") -> None:
    """Held by: ``_told_otherwise_of_the_store``."""
    await trusting.place("store", "beta", address="s:2", ca=CA)
    outcome = (await trusting.push("alpha"))["alpha"]
    assert outcome.verdict == "in-force", outcome.why
    (gone,) = trusting.hosts["alpha"].taken[-1].removes
    assert (gone.element, gone.evidence) == ("registry-trust/net/s:1", "operator")
    assert gone.detail == "the placement of store@beta changed at revision 4, and net rests on where the store is"


async def test_a_store_that_the_operator_placed_on_another_machine_is_moved_too(trusting: "Desk") -> None:
    await trusting.remove("store", "beta")
    await trusting.place("store", "alpha", address="s:2", ca=CA)
    assert (await trusting.push("alpha"))["alpha"].verdict == "in-force"
    assert removed(trusting) == {"registry-trust/net/s:1": "operator"}


@pytest.mark.parametrize("case", ["not placed anew", "asked no more", "somebody else's word", "told the same"])
async def test_a_moved_store_explains_nothing_else(trusting: "Desk", write: Any, case: str) -> None:
    if case != "not placed anew":
        await trusting.place("store", "beta", address="s:2", ca=CA)
    (then,) = (await read(trusting)).declared[-1].modules["net"].rested
    now = where("s:2").model_copy(update={"revision": (await read(trusting)).mesh.revision})
    rested = {
        "not placed anew": (now,),
        "asked no more": (),
        "somebody else's word": (now.model_copy(update={"by": "net@alpha"}),),
        "told the same": (now.model_copy(update={"fingerprint": then.fingerprint}),),
    }[case]
    trusting.module("net", write.composed(TrustStore(address="s:2", ca=CA), rested=rested), sections=("registry-trust",))
    assert (await trusting.push("alpha"))["alpha"].refused.code == "unexplained-removal"  # type: ignore[union-attr]


async def read(desk: "Desk") -> MachineView:
    async with desk.controller.store.read() as connection:
        return await read_machine(connection, "alpha")


async def test_what_a_host_holds_by_its_own_report_alone_is_never_left_out(two_files: "Desk") -> None:
    host = two_files.hosts["alpha"]
    host.held["files/ghost/etc/ghost"] = "d"
    await host.say("standing")
    outcome = (await two_files.push())["alpha"]
    assert outcome.refused is not None
    assert outcome.refused.code == "unexplained-removal"
    assert "files/ghost/etc/ghost" in outcome.why
    assert (await two_files.push(remove=("files/ghost/etc/ghost",)))["alpha"].verdict == "in-force"


async def test_what_may_have_been_applied_unheard_is_named_too(two_files: "Desk", write: Any) -> None:
    """A generation without a report may stand on the machine: what it put there is taken away by name, not left out."""
    host = two_files.hosts["alpha"]
    silenced, host.silent = two_files.controller.modules["motd"], True
    two_files.module("motd", write.composed(write.files("/etc/one", "/etc/two", "/etc/three"), version="2"))
    await two_files.push(patience=0.02)
    host.silent = False
    two_files.controller.modules["motd"] = silenced
    assert (await two_files.push())["alpha"].verdict == "in-force"
    assert removed(two_files) == {"files/motd/etc/three": "module-version"}


async def test_a_removal_that_may_still_arrive_is_not_unchanged(two_files: "Desk", write: Any) -> None:
    """Held by: ``may_be_taken`` in ``is_in_force``: what is under way could still take away what is in force now."""
    before = two_files.controller.modules["motd"]
    two_files.controller.undelivered["alpha"] = SendUnknown("no confirm", "id")
    two_files.module("motd", write.composed(write.files("/etc/one"), version="2"))
    assert (await two_files.push(patience=0.02))["alpha"].verdict == "unheard"
    two_files.controller.undelivered.clear()
    two_files.controller.modules["motd"] = before
    outcome = (await two_files.push())["alpha"]
    assert (outcome.verdict, outcome.generation) == ("in-force", 3)


NAMES = st.sampled_from([f"files/{module}/{path}" for module in ("a", "b", "gone", "ghost") for path in "xyz"])
SETS = st.frozensets(NAMES)


@settings(deadline=None)
@given(
    reported=SETS,
    declared=SETS,
    composed=SETS,
    named=SETS,
    outcomes=st.tuples(*[st.sampled_from(["found", "absent"])] * 2),
    versions=st.tuples(*[st.sampled_from(["1", "2"])] * 2),
)
def test_every_element_held_is_composed_or_removed_with_evidence_or_all_is_refused(
    reported: frozenset[str],
    declared: frozenset[str],
    composed: frozenset[str],
    named: frozenset[str],
    outcomes: tuple[str, str],
    versions: tuple[str, str],
) -> None:
    def rests(at: int) -> dict[str, ModuleRests]:
        return {name: ModuleRests(version=versions[at], parameters={}, rested=(rested(outcomes[at]),)) for name in ("a", "b", "gone")}

    report = Report(
        machine="alpha",
        mesh="m",
        epoch=1,
        generation=1,
        verdict="standing",
        knows=(),
        elements=tuple(ElementReport(element=one, state="in-force", digest="d") for one in sorted(reported)),
    )
    view = MachineView(
        mesh=Mesh("m", 1, 9),
        name="alpha",
        address="10.0.0.1",
        generation=2,
        placements=tuple(Placement(module, "alpha", {}, 2, "") for module in ("a", "b")),
        ended={"gone": 4},
        declared=(Declared(1, 2, 3, "told", dict.fromkeys(declared, "d"), rests(0)),),
        report=report,
    )
    composed = frozenset(one for one in composed if one.split("/")[1] in ("a", "b"))
    now = ComposedMachine(view, (), dict.fromkeys(composed, "d"), {name: one for name, one in rests(1).items() if name != "gone"})
    outcome = removals(now, sorted(named))
    held = reported | declared
    if isinstance(outcome, Refused):
        missing = [one for one in held - composed if one in outcome.why]
        assert missing or named & held & composed
        return
    assert {one.element for one in outcome} == held - composed
    for one in outcome:
        module = one.element.split("/")[1]
        assert one.detail
        match one.evidence:
            case "placement-ended":
                assert module == "gone"
            case "operator":
                assert one.element in named
            case "absent":
                assert outcomes == ("found", "absent")
            case "module-version":
                assert versions[0] != versions[1]
