"""A declaration is composed of one revision and its generation is given once; what moved is composed again. Field case B32."""

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from mesh_runtime.contracts import (
    Composed,
    Machine,
    Overlay,
    OverlayPeers,
    Rested,
    element_name,
)
from mesh_runtime.testing.waiting import until

if TYPE_CHECKING:
    from conftest import Desk


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


async def test_ground_that_moves_between_compose_and_signature_is_seen_at_the_write(
    placed: "Desk", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held by: the revision compared in ``store_declaration``, in the transaction that writes."""
    moments = iter(["then", "now", "later"])

    def moment() -> str:
        said = next(moments)
        if said == "then":  # composed, signed, and about to be stored
            other = sqlite3.connect(placed.file)
            other.execute("UPDATE mesh SET revision = 99")
            other.commit()
            other.close()
        return said

    monkeypatch.setattr(placed.controller.pushing, "now", moment)
    assert (await placed.push("alpha"))["alpha"].verdict == "in-force"
    assert [one.revision for one in placed.hosts["alpha"].taken] == [99]


async def test_a_host_that_turns_out_to_be_ahead_is_told_nothing_at_the_last_moment(
    placed: "Desk", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held by: ``machines_ahead`` in ``store_declaration``."""

    def moment() -> str:
        other = sqlite3.connect(placed.file)
        other.execute("UPDATE reports SET epoch = 1, generation = 40 WHERE machine = 'beta'")
        other.commit()
        other.close()
        return "now"

    monkeypatch.setattr(placed.controller.pushing, "now", moment)
    outcome = (await placed.push("alpha"))["alpha"]
    assert outcome.refused is not None
    assert outcome.refused.code == "store-behind"
    assert placed.hosts["alpha"].taken == []


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
    assert await placed.refusals() == {}


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
