"""What is told to hosts and by them: fates of a declaration, and which reports are believed. Field case B46."""

from typing import TYPE_CHECKING, Any

import pytest

from mesh_runtime import NotSent, SendUnknown
from mesh_runtime.asking import Scope, scoped
from mesh_runtime.contracts import (
    Report,
)
from mesh_runtime_controller.changes import ForeignReport
from mesh_runtime_controller.records import UnknownMachine

if TYPE_CHECKING:
    from conftest import Desk


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
        stored.append(await placed.generation())
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
    assert (await placed.refusals())["alpha"][0] == "host-refused"
    host.held.clear()
    await host.say("standing")
    assert (await placed.push("alpha"))["alpha"].generation == 2


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


async def test_of_one_generation_the_report_that_was_seen_later_stands_whatever_comes_again(placed: "Desk") -> None:
    """A redelivered older ``standing`` report says what is no longer so. Held by: the number in ``record_report``."""
    await placed.push()
    host = placed.hosts["alpha"]
    host.failing["files/motd/etc/motd"] = "changed from outside"
    await host.say("standing", number=7)
    failing, host.failing = host.failing, {}
    await host.say("standing", number=8)
    host.failing = failing
    await host.say("standing", number=7)
    assert (await placed.push("alpha"))["alpha"].verdict == "unchanged"
    await host.say("standing", number=9)
    host.failing = {}
    assert (await placed.push("alpha"))["alpha"].generation == 2


async def test_a_refusal_that_is_heard_before_the_confirm_is_not_forgotten_by_it(placed: "Desk") -> None:
    """Held by: ``mark_told`` moves a declaration from ``stored`` alone."""
    placed.hosts["alpha"].held["files/ghost/etc/ghost"] = "d"
    assert (await placed.push("alpha"))["alpha"].verdict == "refused"
    async with placed.controller.store.read() as connection:
        (fate,) = (await connection.exec_driver_sql("SELECT told FROM declarations")).scalars()
    assert fate == "refused"


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


async def test_a_refusal_or_a_failure_that_names_nothing_says_nothing_of_what_stands(placed: "Desk") -> None:
    """A host that could not look refuses with no elements: what was known to be held stays known."""
    await placed.push()
    said = Report(machine="alpha", mesh="m-1", epoch=1, generation=1, verdict="refused", why="x", elements=(), knows=())
    await placed.hosts["alpha"].report(said)
    await placed.hosts["alpha"].report(said.model_copy(update={"verdict": "failed"}))
    assert (await placed.push("alpha"))["alpha"].verdict == "unchanged"


async def test_an_outcome_stands_though_the_list_of_refusals_cannot_be_kept(placed: "Desk", monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up after the host has reported: what is in force is in force."""

    async def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mesh_runtime_controller.pushing.clear_refusal", full)
    assert (await placed.push())["alpha"].verdict == "in-force"
