"""A plan is the difference to what is reported; its fingerprint holds as long as what it rests on does."""

from typing import TYPE_CHECKING, Any

import pytest

from mesh_runtime.contracts import Refused, Rested
from mesh_runtime.contracts.operating import Plan

if TYPE_CHECKING:
    from conftest import Desk

ONE, TWO = "files/motd/etc/one", "files/motd/etc/two"


def found(fingerprint: str) -> Rested:
    return Rested(question="q()", outcome="found", by="x@alpha", revision=1, fingerprint=fingerprint)


@pytest.fixture
async def placed(desk: "Desk", write: Any) -> "Desk":
    desk.module("motd", write.composed(write.files("/etc/one", "/etc/two"), rested=(found("f"),)))
    await desk.place("motd", "alpha")
    return desk


async def changes(desk: "Desk") -> dict[str, tuple[str, str]]:
    planned = await desk.plan()
    assert [one.machine for one in planned.machines] == ["alpha"]
    return {one.element: (one.change, one.evidence) for one in planned.machines[0].changes}


async def test_a_plan_adds_changes_and_removes_and_does_nothing(placed: "Desk", write: Any) -> None:
    assert await changes(placed) == {ONE: ("add", ""), TWO: ("add", "")}
    assert placed.hosts["alpha"].taken == []
    await placed.push()
    assert await changes(placed) == {}
    placed.module("motd", write.composed(write.files("/etc/one", content="other\n"), version="2"))
    assert await changes(placed) == {ONE: ("change", ""), TWO: ("remove", "module-version: motd went from 1 to 2")}


async def test_a_removal_without_evidence_is_listed_and_refused(placed: "Desk", write: Any) -> None:
    await placed.push()
    placed.module("motd", write.composed(write.files("/etc/one"), rested=(found("f"),)))
    plan = (await placed.plan()).machines[0]
    assert [(one.element, one.change, one.evidence) for one in plan.changes] == [(TWO, "remove", "")]
    assert plan.refused is not None
    assert plan.refused.code == "unexplained-removal"


async def test_what_failed_by_its_report_is_a_change(placed: "Desk") -> None:
    placed.hosts["alpha"].failing = {ONE: "no space"}
    await placed.push()
    assert await changes(placed) == {ONE: ("change", "")}


async def test_a_refused_machine_is_shown_with_its_refusal(placed: "Desk") -> None:
    placed.module("motd", Refused(code="no", why="not today"))
    plan = (await placed.plan()).machines[0]
    assert plan.refused is not None
    assert (plan.refused.code, plan.changes) == ("no", ())


async def test_no_machine_at_all_has_its_own_words(desk: "Desk") -> None:
    refused = await desk.controller.plan(Plan())
    assert isinstance(refused, Refused)
    assert refused.code == "nothing-to-do"


async def test_a_push_of_a_plan_that_holds_goes_through(placed: "Desk") -> None:
    fingerprint = (await placed.plan()).fingerprint
    await placed.place("motd", "beta")  # another machine, another revision: nothing of this plan
    assert (await placed.push("alpha", plan=fingerprint))["alpha"].verdict == "in-force"


async def test_a_plan_with_the_operators_word_added_still_holds(placed: "Desk", write: Any) -> None:
    await placed.push()
    placed.module("motd", write.composed(write.files("/etc/one"), rested=(found("f"),)))
    fingerprint = (await placed.plan()).fingerprint
    assert (await placed.push(plan=fingerprint, remove=(TWO,)))["alpha"].verdict == "in-force"


def another_answer(desk: "Desk", write: Any) -> None:
    desk.module("motd", write.composed(write.files("/etc/one", "/etc/two"), rested=(found("g"),)))


def another_content(desk: "Desk", write: Any) -> None:
    desk.module("motd", write.composed(write.files("/etc/one", "/etc/two", content="y"), rested=(found("f"),)))


def another_version(desk: "Desk", write: Any) -> None:
    desk.module("motd", write.composed(write.files("/etc/one", "/etc/two"), rested=(found("f"),), version="2"))


def a_refusal(desk: "Desk", write: Any) -> None:
    desk.module("motd", Refused(code="no", why="not today"))


@pytest.mark.parametrize("move", [another_answer, another_content, another_version, a_refusal])
async def test_a_plan_that_moved_is_refused_and_nothing_is_told(placed: "Desk", write: Any, move: Any) -> None:
    """Held by: ``fingerprint_of`` and its comparison in ``_OnePush.run``."""
    fingerprint = (await placed.plan()).fingerprint
    move(placed, write)
    assert (await placed.push_refused(plan=fingerprint)).code == "plan-moved"
    assert placed.hosts["alpha"].taken == []


async def test_a_plan_moves_with_intent_and_with_what_is_reported(placed: "Desk") -> None:
    fingerprint = (await placed.plan()).fingerprint
    await placed.place("motd", "alpha", colour="red")
    second = (await placed.plan()).fingerprint
    assert second != fingerprint
    placed.hosts["alpha"].held["files/ghost/x"] = "d"
    await placed.hosts["alpha"].say("standing")
    assert (await placed.plan()).fingerprint != second
