"""A refusal is of one machine, whole, listed since, and the last good generation stays. Field cases B41, B47; K11."""

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from mesh_runtime.contracts import (
    Missing,
    Overlay,
    Reason,
    Refused,
    Unanswered,
)

if TYPE_CHECKING:
    from conftest import Desk


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
    assert (await placed.refusals())["beta"] == ("malformed-record", since)
    assert (await placed.push("beta"))["beta"].since == since
    assert len(placed.hosts["beta"].taken) == 1
    async with placed.controller.store.write() as connection:
        await connection.execute(text("UPDATE placements SET parameters = '{}' WHERE machine = 'beta'"))
    assert (await placed.push("beta"))["beta"].verdict == "in-force"
    assert await placed.refusals() == {}


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
    assert await placed.generation() == 1


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
