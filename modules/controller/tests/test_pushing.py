"""A push: one outcome for each machine; in force is only what its host has seen. Field case B51; K12."""

from typing import TYPE_CHECKING, Any

import pytest

from mesh_runtime.contracts import (
    Composed,
    ElementReport,
    Machine,
    Report,
)

if TYPE_CHECKING:
    from conftest import Desk

MOTD = "files/motd/etc/motd"


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


async def test_b51_a_host_that_is_away_is_unheard_since_its_last_report(placed: "Desk", write: Any) -> None:
    await placed.push()
    placed.hosts["alpha"].silent = True
    await placed.place("motd", "alpha", colour="red")
    placed.module("motd", lambda machine: write.composed(write.files("/etc/motd", content="changed\n")))
    pushed = await placed.push("alpha", patience=0.05)
    assert (pushed["alpha"].verdict, pushed["alpha"].generation) == ("unheard", 2)
    assert pushed["alpha"].since.startswith("1970-01-01T00:00")


async def test_before_its_first_report_a_machine_is_unheard_and_told_nothing(unprepared: "Desk", write: Any) -> None:
    desk = unprepared
    await desk.controller.prepare()
    desk.module("motd", write.composed(write.files("/etc/motd")))
    await desk.place("motd", "alpha")
    assert (await desk.push())["alpha"].verdict == "unheard"
    assert await desk.generation() == 0
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
    placed: "Desk", elements: tuple[ElementReport, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = placed.hosts["alpha"]

    async def say(verdict: Any, **more: Any) -> None:
        await host.report(
            Report(machine="alpha", mesh="m-1", epoch=1, generation=1, verdict="in-force", elements=elements, knows=host.knows)
        )

    monkeypatch.setattr(host, "say", say)
    outcome = (await placed.push("alpha"))["alpha"]
    assert outcome.verdict == "failed"
    assert words in outcome.why
