"""A push: one outcome for each machine; in force is only what its host has seen. Field cases B32, B41, B46, B47, B51; K11, K12."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from mesh_runtime import NotSent, SendUnknown
from mesh_runtime.asking import Scope, scoped
from mesh_runtime.contracts import (
    Composed,
    ElementReport,
    Machine,
    Missing,
    Overlay,
    OverlayPeers,
    Reason,
    Refused,
    Report,
    Rested,
    Unanswered,
    element_name,
)
from mesh_runtime.testing.waiting import until
from mesh_runtime_controller.changes import ForeignReport
from mesh_runtime_controller.records import UnknownMachine

if TYPE_CHECKING:
    from conftest import Desk

MOTD = "files/motd/etc/motd"


async def generation(desk: "Desk", machine: str = "alpha") -> int:
    async with desk.controller.store.read() as connection:
        row = await connection.execute(text("SELECT generation FROM machines WHERE name = :n"), {"n": machine})
        return int(row.scalar_one())


async def refusals(desk: "Desk") -> dict[str, tuple[str, str]]:
    async with desk.controller.store.read() as connection:
        rows = (await connection.execute(text("SELECT machine, code, since FROM refusals"))).all()
    return {row.machine: (row.code, row.since) for row in rows}


@pytest.fixture
async def placed(desk: "Desk", write: Any) -> "Desk":
    """``motd`` composes one file on both machines."""
    desk.module("motd", lambda machine: write.composed(write.files("/etc/motd", content=f"{machine.name}\n")))
    await desk.place("motd", "alpha")
    await desk.place("motd", "beta")
    return desk


async def test_a_push_is_in_force_when_each_host_has_seen_it(placed: "Desk") -> None:
    pushed = await placed.push()
    assert {name: (one.verdict, one.generation) for name, one in pushed.items()} == {"alpha": ("in-force", 1), "beta": ("in-force", 1)}
    assert [(one.element, one.state) for one in pushed["beta"].elements] == [(MOTD, "in-force")]
    statement = placed.hosts["alpha"].taken[0]
    assert (statement.mesh, statement.machine, statement.epoch, statement.generation, statement.revision) == ("m-1", "alpha", 1, 1, 3)


async def test_the_same_again_is_unchanged_and_nothing_is_told(placed: "Desk") -> None:
    await placed.push()
    again = await placed.push()
    assert {one.verdict for one in again.values()} == {"unchanged"}
    assert [len(host.taken) for host in placed.hosts.values()] == [1, 1]


async def test_what_drifted_by_its_own_report_is_declared_again(placed: "Desk") -> None:
    await placed.push()
    host = placed.hosts["alpha"]
    host.held[MOTD] = "another digest"
    await host.say("standing")
    assert (await placed.push("alpha"))["alpha"].verdict == "in-force"
    assert [one.generation for one in host.taken] == [1, 2]


async def test_parameters_of_the_placement_reach_the_module(desk: "Desk", write: Any) -> None:
    asked: list[Machine] = []

    def answer(machine: Machine) -> Composed:
        asked.append(machine)
        return write.composed(write.files("/etc/motd"))  # type: ignore[no-any-return]

    desk.module("motd", answer)
    await desk.place("motd", "beta", colour="red")
    await desk.push()
    assert asked == [Machine(name="beta", address="10.0.0.2", parameters={"colour": "red"})]


# ------------------------------------------------------------------------------------------------ B51: nothing done is no success


async def test_b51_nothing_to_do_and_unknown_machines_have_their_own_words(desk: "Desk") -> None:
    """Held by: ``_targets``."""
    assert (await desk.push_refused()).code == "nothing-to-do"
    assert (await desk.push_refused("alpha")).code == "nothing-to-do"
    refused = await desk.push_refused("alpha", "gamma")
    assert (refused.code, refused.why) == ("unknown-machine", "the mesh has no machine gamma; it has alpha, beta")


async def test_a_machine_with_nothing_on_it_is_not_taken_along_in_silence(desk: "Desk", write: Any) -> None:
    desk.module("motd", write.composed(write.files("/etc/motd")))
    await desk.place("motd", "alpha")
    pushed = await desk.push("alpha", "beta")
    assert pushed["alpha"].verdict == "in-force"
    assert pushed["beta"].verdict == "refused"
    assert pushed["beta"].refused is not None
    assert pushed["beta"].refused.code == "nothing-to-do"


async def test_b51_a_host_that_is_away_is_unheard_since_its_last_report(placed: "Desk") -> None:
    await placed.push()
    placed.hosts["alpha"].silent = True
    await placed.place("motd", "alpha", colour="red")
    placed.module("motd", lambda machine: _changed(machine, placed))
    pushed = await placed.push("alpha", patience=0.05)
    assert (pushed["alpha"].verdict, pushed["alpha"].generation) == ("unheard", 2)
    assert pushed["alpha"].since.startswith("1970-01-01T00:00")


def _changed(machine: Machine, desk: "Desk") -> Any:
    from mesh_runtime.contracts import ComposedSection, File, Files

    body = Files(files=(File(path="/etc/motd", content="changed\n"),)).model_dump(mode="json")
    return Composed(sections=(ComposedSection(section="files", body=body),), rested=(), version="1")


async def test_before_its_first_report_a_machine_is_unheard_and_told_nothing(unprepared: "Desk", write: Any) -> None:
    desk = unprepared
    await desk.controller.prepare()
    desk.module("motd", write.composed(write.files("/etc/motd")))
    await desk.place("motd", "alpha")
    assert (await desk.push())["alpha"].verdict == "unheard"
    assert await generation(desk) == 0
    await desk.hosts["alpha"].say("standing")
    assert (await desk.push())["alpha"].verdict == "in-force"


async def test_b51_an_element_that_failed_or_is_not_named_is_no_success(placed: "Desk") -> None:
    """Held by: ``_declared`` in ``judging.py``."""
    placed.hosts["alpha"].failing = {MOTD: "No space left on device"}
    pushed = await placed.push()
    assert pushed["alpha"].verdict == "failed"
    assert MOTD in pushed["alpha"].why
    assert "No space left" in pushed["alpha"].why
    assert pushed["beta"].verdict == "in-force"


@pytest.mark.parametrize(
    ("elements", "words"),
    [
        ((), "does not name it"),
        ((ElementReport(element=MOTD, state="in-force", digest="0" * 64),), "not what was declared"),
        ((ElementReport(element=MOTD, state="removed"),), "removed what was declared"),
    ],
)
async def test_b51_a_host_that_says_in_force_of_something_else_is_not_believed(
    placed: "Desk", elements: tuple[ElementReport, ...], words: str
) -> None:
    host = placed.hosts["alpha"]

    async def say(verdict: Any, **more: Any) -> None:
        await host.report(
            Report(machine="alpha", mesh="m-1", epoch=1, generation=1, verdict="in-force", elements=elements, knows=host.knows)
        )

    host.say = say  # type: ignore[method-assign]
    outcome = (await placed.push("alpha"))["alpha"]
    assert outcome.verdict == "failed"
    assert words in outcome.why


# ------------------------------------------------------------------------------------------------ refusals stay with their machine


async def test_b47_one_machine_refused_holds_back_no_other_and_is_listed_since(placed: "Desk", write: Any) -> None:
    """Held by: ``_confined`` and ``record_refusal``; the record of one machine is read for that machine alone."""
    await placed.push()
    async with placed.controller.store.write() as connection:
        await connection.execute(text("UPDATE placements SET parameters = '{' WHERE machine = 'beta'"))
    placed.module("motd", lambda machine: write.composed(write.files("/etc/motd", content="new\n")))
    pushed = await placed.push()
    assert pushed["alpha"].verdict == "in-force"
    assert pushed["beta"].verdict == "refused"
    assert "placement motd@beta" in pushed["beta"].why
    since = pushed["beta"].since
    assert (await refusals(placed))["beta"] == ("malformed-record", since)
    assert (await placed.push("beta"))["beta"].since == since
    assert len(placed.hosts["beta"].taken) == 1
    async with placed.controller.store.write() as connection:
        await connection.execute(text("UPDATE placements SET parameters = '{}' WHERE machine = 'beta'"))
    assert (await placed.push("beta"))["beta"].verdict == "in-force"
    assert await refusals(placed) == {}


MISSING = Missing(question="store-reachable-from(machine='alpha')", reason=Reason.TIME_OUT, detail="no answer from controller in time")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Unanswered([Missing(question="compose of motd for alpha", reason=Reason.NOBODY)]), "compose of motd for alpha: nobody"),
        (Refused(code="unanswered", why="motd cannot be composed", unanswered=(MISSING,), again=True), "motd cannot be composed"),
        (Refused(code="error", why="compose raised KeyError"), "KeyError"),
        (RuntimeError("not even a refusal"), "not even a refusal"),
    ],
)
async def test_b41_whatever_ends_a_compose_refuses_the_machine_whole_and_the_last_generation_stays(
    placed: "Desk", answer: Any, words: str, write: Any
) -> None:
    """Held by: ``_refusals`` in ``composing.py``."""
    placed.module("other", write.composed(write.files("/etc/other")))
    await placed.place("other", "alpha")
    await placed.push()
    held = dict(placed.hosts["alpha"].held)
    placed.module("motd", lambda machine: answer if machine.name == "alpha" else write.composed(write.files("/etc/motd")))
    outcome = (await placed.push())["alpha"]
    assert outcome.verdict in ("refused", "failed")
    assert words in outcome.why
    assert placed.hosts["alpha"].held == held
    assert await generation(placed) == 1


async def test_all_that_was_unanswered_is_named_from_all_modules_at_once(placed: "Desk", write: Any) -> None:
    first = Missing(question="a()", reason=Reason.NOBODY)
    placed.module("motd", Unanswered([first]))
    placed.module("other", Refused(code="unanswered", why="other cannot", unanswered=(MISSING, first), again=True))
    placed.module("third", write.composed(write.files("/etc/third")))
    await placed.place("other", "alpha")
    await placed.place("third", "alpha")
    outcome = (await placed.push("alpha"))["alpha"]
    assert outcome.refused is not None
    assert (outcome.refused.code, outcome.refused.again) == ("unanswered", True)
    assert outcome.refused.unanswered == (first, MISSING)
    assert outcome.by == "motd, other@alpha"


async def test_a_placed_module_that_is_no_longer_installed_is_not_left_out(placed: "Desk") -> None:
    """Held by: ``composing_placements`` counting what the catalog does not know."""
    await placed.push()
    del placed.manifests["motd"]
    outcome = (await placed.push("alpha"))["alpha"]
    assert outcome.refused is not None
    assert outcome.refused.code == "unknown-module"


async def test_a_section_that_the_host_does_not_know_is_not_composed_for_it(placed: "Desk") -> None:
    placed.hosts["alpha"].knows = ("overlay",)
    await placed.hosts["alpha"].say("standing")
    pushed = await placed.push()
    assert pushed["alpha"].refused is not None
    assert pushed["alpha"].refused.code == "section-not-known"
    assert "files (of motd)" in pushed["alpha"].why
    assert pushed["beta"].verdict == "in-force"


@pytest.mark.parametrize(
    ("mine", "its", "words"),
    [
        (("/etc/a",), ("/etc/b", "/etc/a"), "files /etc/a"),
        (("/etc/a",), ("/etc/a/b",), "/etc/a and /etc/a/b cannot both be files"),
        (("/etc/a/b/c",), ("/etc/a",), "/etc/a and /etc/a/b/c cannot both be files"),
    ],
)
async def test_two_modules_that_claim_one_path_are_refused_both_named(placed: "Desk", write: Any, mine: Any, its: Any, words: str) -> None:
    placed.module("motd", write.composed(write.files(*mine)))
    placed.module("other", write.composed(write.files(*its)))
    await placed.place("other", "alpha")
    outcome = (await placed.push("alpha"))["alpha"]
    assert outcome.refused is not None
    assert outcome.refused.code == "conflict"
    assert "motd and other both claim" in outcome.why
    assert words in outcome.why


async def test_two_overlays_on_one_machine_are_refused(desk: "Desk", write: Any) -> None:
    for name in ("first", "second"):
        desk.module(name, write.composed(Overlay(address="10.0.0.1", peers=())), sections=("overlay",))
        await desk.place(name, "alpha")
    outcome = (await desk.push())["alpha"]
    assert "first and second both claim overlay" in outcome.why


async def test_paths_that_only_look_alike_are_no_conflict(placed: "Desk", write: Any) -> None:
    placed.module("motd", write.composed(write.files("/etc/a", "/etc/a.d/x")))
    placed.module("other", write.composed(write.files("/etc/ab", "/etc/a.d/y")))
    await placed.place("other", "alpha")
    assert (await placed.push("alpha"))["alpha"].verdict == "in-force"


# ------------------------------------------------------------------------------------------------ one revision


async def test_a_compose_whose_ground_moves_is_composed_again(placed: "Desk", write: Any) -> None:
    """Held by: the comparison of revisions in ``_composed`` and ``store_declaration``."""
    times: list[int] = []

    async def compose(machine: Machine) -> Composed:
        times.append(1)
        if len(times) == 1:
            await placed.place("other", "beta")
        return write.composed(write.files("/etc/motd", content=f"{len(times)}\n"))  # type: ignore[no-any-return]

    placed.module("other", write.composed(write.files("/etc/other")))
    placed.controller.modules["motd"] = compose
    outcome = (await placed.push("alpha"))["alpha"]
    assert outcome.verdict == "in-force"
    assert len(times) == 2
    statement = placed.hosts["alpha"].taken[-1]
    assert statement.revision == 4
    assert statement.sections[0].body["files"][0]["content"] == "2\n"


async def test_ground_that_never_stands_still_is_refused_as_moved(placed: "Desk", write: Any) -> None:
    numbers = iter(range(100))

    async def compose(machine: Machine) -> Composed:
        await placed.place("motd", "beta", number=str(next(numbers)))
        return write.composed(write.files("/etc/motd"))  # type: ignore[no-any-return]

    placed.controller.modules["motd"] = compose
    outcome = (await placed.push("alpha"))["alpha"]
    assert outcome.refused is not None
    assert (outcome.refused.code, outcome.refused.again) == ("moved", True)
    assert next(numbers) == 3
    assert placed.hosts["alpha"].taken == []


async def test_an_answer_of_an_older_revision_is_not_composed_from(placed: "Desk", write: Any) -> None:
    old = Rested(question="q()", outcome="absent", by="controller@alpha", revision=2, fingerprint="f")
    placed.module("motd", write.composed(write.files("/etc/motd"), rested=(old,)))
    assert (await placed.push("alpha"))["alpha"].refused.code == "moved"  # type: ignore[union-attr]


async def test_two_modules_given_two_answers_to_one_question_are_not_merged(placed: "Desk", write: Any) -> None:
    for name, fingerprint in (("motd", "f"), ("other", "g")):
        rested = Rested(question="q()", outcome="found", by="x@alpha", revision=1, fingerprint=fingerprint)
        placed.module(name, write.composed(write.files(f"/etc/{name}"), rested=(rested,)))
    await placed.place("other", "alpha")
    outcome = (await placed.push("alpha"))["alpha"]
    assert "motd and other were given two answers to q()" in outcome.why


async def test_b32_a_generation_is_given_once_whoever_is_late(placed: "Desk", write: Any) -> None:
    """Held by: the generation compared in ``store_declaration``. Another controller on this store has gone on meanwhile."""
    seen: list[int] = []

    async def compose(machine: Machine) -> Composed:
        if not seen:
            async with placed.controller.store.write() as connection:
                await connection.execute(text("UPDATE machines SET generation = 7 WHERE name = 'alpha'"))
        seen.append(1)
        return write.composed(write.files("/etc/motd"))  # type: ignore[no-any-return]

    placed.controller.modules["motd"] = compose
    outcome = (await placed.push("alpha"))["alpha"]
    assert (outcome.verdict, outcome.generation) == ("in-force", 8)


async def test_two_pushes_of_one_machine_at_once_the_second_is_refused_by_name(placed: "Desk", write: Any) -> None:
    """Held by: ``_under_way``."""
    go = asyncio.Event()
    begun: list[str] = []

    async def compose(machine: Machine) -> Composed:
        begun.append(machine.name)
        await go.wait()
        return write.composed(write.files("/etc/motd"))  # type: ignore[no-any-return]

    placed.controller.modules["motd"] = compose
    first = asyncio.create_task(placed.push("alpha"))
    await until(lambda: bool(begun), "the first push composes")
    second = asyncio.create_task(placed.push())
    await until(lambda: begun == ["alpha", "beta"], "the second push composes beta alone")
    go.set()
    outcome = (await second)["alpha"]
    assert outcome.refused is not None
    assert outcome.refused.code == "push-under-way"
    assert (await second)["beta"].verdict == "in-force"
    assert (await first)["alpha"].verdict == "in-force"
    assert (await placed.push("alpha"))["alpha"].verdict == "unchanged"
    assert await refusals(placed) == {}


# ------------------------------------------------------------------------------------------------ telling


async def test_a_declaration_that_was_not_sent_is_failed_and_the_next_one_goes_above(placed: "Desk") -> None:
    placed.controller.undelivered["alpha"] = NotSent("nobody listens")
    pushed = await placed.push()
    assert (pushed["alpha"].verdict, pushed["alpha"].generation) == ("failed", 1)
    assert "nobody listens" in pushed["alpha"].why
    assert pushed["beta"].verdict == "in-force"
    placed.controller.undelivered.clear()
    assert (await placed.push())["alpha"].generation == 2


async def test_a_declaration_of_unknown_fate_is_unheard_and_told_again_above(placed: "Desk") -> None:
    placed.controller.undelivered["alpha"] = SendUnknown("no confirm", "id")
    pushed = await placed.push("alpha", patience=0.05)
    assert (pushed["alpha"].verdict, pushed["alpha"].generation) == ("unheard", 1)
    assert "no confirm" in pushed["alpha"].why
    placed.controller.undelivered.clear()
    assert (await placed.push("alpha"))["alpha"].generation == 2


async def test_what_may_still_arrive_is_not_unchanged(placed: "Desk", write: Any) -> None:
    """Held by: ``may_be_taken`` in ``is_in_force``: an older declaration under way could come over what is in force."""
    await placed.push()
    placed.controller.undelivered["alpha"] = SendUnknown("no confirm", "id")
    motd = placed.controller.modules["motd"]
    placed.module("motd", write.composed(write.files("/etc/motd", content="other\n")))
    await placed.push("alpha", patience=0.05)
    placed.controller.undelivered.clear()
    placed.controller.modules["motd"] = motd
    assert (await placed.push("alpha"))["alpha"].generation == 3


async def test_a_declaration_is_stored_before_it_is_told(placed: "Desk") -> None:
    stored: list[int] = []
    declare = placed.controller.declare

    async def looking(*told: Any) -> str:
        stored.append(await generation(placed))
        return await declare(*told)

    placed.controller.pushing.declare = looking
    await placed.push("alpha")
    assert stored == [1]


async def test_a_host_that_refuses_is_named_with_its_reason_and_the_next_push_goes_above(placed: "Desk") -> None:
    host = placed.hosts["alpha"]
    host.held["files/ghost/etc/ghost"] = "d"  # something of ours that no report has named yet
    outcome = (await placed.push("alpha"))["alpha"]
    assert (outcome.verdict, outcome.by) == ("refused", "host@alpha")
    assert "files/ghost/etc/ghost" in outcome.why
    assert (await refusals(placed))["alpha"][0] == "host-refused"
    host.held.clear()
    await host.say("standing")
    assert (await placed.push("alpha"))["alpha"].generation == 2


# ------------------------------------------------------------------------------------------------ reports


async def test_b46_a_report_of_what_this_store_never_declared_stops_every_declaration(placed: "Desk") -> None:
    """Held by: ``machines_ahead``."""
    host = placed.hosts["beta"]
    host.epoch, host.generation = 1, 40
    await host.say("standing")
    for refused in (await placed.push_refused(), await placed.push_refused("alpha")):
        assert refused.code == "store-behind"
        assert "beta reports generation 40 of epoch 1, this store knows up to 0" in refused.why
    assert placed.hosts["alpha"].taken == []


async def test_an_older_report_does_not_take_the_place_of_a_newer_one(placed: "Desk") -> None:
    await placed.push()
    await placed.hosts["alpha"].report(
        Report(machine="alpha", mesh="", epoch=0, generation=0, verdict="standing", elements=(), knows=("files",))
    )
    assert (await placed.push("alpha"))["alpha"].verdict == "unchanged"


async def test_reports_of_others_are_not_taken(desk: "Desk") -> None:
    def report(machine: str, mesh: str = "m-1", number: int = 1) -> Report:
        return Report(machine=machine, mesh=mesh, epoch=1, generation=number, verdict="standing", elements=(), knows=())

    with pytest.raises(ForeignReport, match="host@alpha alone"):
        await desk.hosts["beta"].report(report("alpha"))
    with pytest.raises(ForeignReport, match="'m-2'"):
        await desk.hosts["beta"].report(report("beta", "m-2"))
    with pytest.raises(ForeignReport, match="''"):
        await desk.hosts["beta"].report(report("beta", ""))
    with pytest.raises(UnknownMachine), scoped(Scope(what="test", sender="host@gamma")):
        await desk.controller.reported(report("gamma"))


async def test_a_refusal_says_nothing_of_what_stands(placed: "Desk") -> None:
    """A host that could not look refuses with no elements: what was known to be held stays known."""
    await placed.push()
    await placed.hosts["alpha"].report(
        Report(machine="alpha", mesh="m-1", epoch=1, generation=1, verdict="refused", why="x", elements=(), knows=())
    )
    assert (await placed.push("alpha"))["alpha"].verdict == "unchanged"


async def test_lookups_of_the_controllers_own_are_of_the_revision_of_the_compose(placed: "Desk", write: Any) -> None:
    """The whole way: a module that asks the controller, whose inventory moves between its question and the signature."""

    async def compose(machine: Machine) -> Composed:
        peers = await placed.controller.overlay_peers(OverlayPeers(of=machine.name))
        rested = Rested(question="peers", outcome="found", by="controller@alpha", revision=peers.revision, fingerprint="f")
        return write.composed(  # type: ignore[no-any-return]
            Overlay(address=machine.address, peers=peers.value), rested=(rested,)
        )

    placed.module("net", None, sections=("overlay",))
    placed.controller.modules["net"] = compose
    await placed.place("net", "alpha")
    outcome = (await placed.push("alpha"))["alpha"]
    assert outcome.verdict == "in-force"
    assert element_name("overlay", "net", "") in {one.element for one in outcome.elements}
