"""The newest declaration wins, whoever is slow (field case B32)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from mesh_runtime.testing.waiting import until
from mesh_runtime_host import Host
from mesh_runtime_host.judging import Refusal, Repeated

if TYPE_CHECKING:
    from conftest import HostRoot

PATH = "/etc/motd"


def motd(hostroot: "HostRoot") -> str:
    return (hostroot.root / "etc/motd").read_text()


async def test_b32_older_and_repeated_generations_are_answered_stale_and_the_newest_stands(hostroot: "HostRoot") -> None:
    """B32: 5, 7, 6, 7 again, and 5 after a restart: what stands is 7, and the others are answered `stale`.

    Removal: modules/host/mesh_runtime_host/host.py: check_newer(statement, floor, same=self.store.signed() == signed)
    Assertion: {5, 6, 7} <= stale
    """
    sent = {number: hostroot.files(number, {PATH: f"generation {number}"}) for number in (5, 6, 7)}
    async with hostroot.running() as host:
        for number in (5, 7, 6, 7):
            await host.declared(sent[number])
        await until(lambda: host.store.floor().told and host.store.floor().generation == 7, "the verdict on 7 told")
        await until(lambda: any(one.generation == 6 for one in hostroot.ears.heard), "the answer to 6")
    before = len(hostroot.ears.heard)
    async with hostroot.running() as restarted:
        await until(lambda: len(hostroot.ears.heard) > before, "what stands at the start")
        for number in (5, 7):
            await restarted.declared(sent[number])
        await until(lambda: len(hostroot.ears.heard) >= before + 3, "the answers to 5 and 7")
    assert motd(hostroot) == "generation 7"
    stale = {one.generation for one in hostroot.ears.heard if "stale: " in one.why}
    assert {5, 6, 7} <= stale
    assert {one.generation for one in hostroot.ears.heard if one.verdict == "in-force"} <= {5, 7}


def test_b32_a_worker_that_is_delayed_between_reading_and_writing_does_not_overwrite_a_newer_one(
    hostroot: "HostRoot", monkeypatch: pytest.MonkeyPatch
) -> None:
    """B32: two agents apply 8 and 9; 8 is held up just before its write until 9 is in force. What stands is 9.

    Removal: modules/host/mesh_runtime_host/applying.py: self._store.check_current(work.floor.number)  # at the moment of writing
    Assertion: motd(hostroot) == "generation 9"
    """
    slow, quick = hostroot.host(), hostroot.host()
    slow.take(hostroot.files(7, {PATH: "generation 7"}))
    slow.applier.bring()
    slow.take(hostroot.files(8, {PATH: "generation 8"}))
    about_to_write, go_on = held_up_before_its_write(slow, monkeypatch)
    worker = threading.Thread(target=slow.applier.bring)
    worker.start()
    assert about_to_write.wait(10)
    quick.take(hostroot.files(9, {PATH: "generation 9"}))
    assert [one.state for one in quick.applier.bring().elements] == ["in-force"]
    go_on.set()
    worker.join(10)
    assert motd(hostroot) == "generation 9"


def held_up_before_its_write(host: Host, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """The host has planned, and waits before it takes the lock to write."""
    reached, go_on = threading.Event(), threading.Event()
    locked, entered = host.store.locked, []

    @contextmanager
    def slowly() -> Iterator[None]:
        entered.append(1)
        if len(entered) == 2:
            reached.set()
            assert go_on.wait(10)
        with locked():
            yield

    monkeypatch.setattr(host.store, "locked", slowly)
    return reached, go_on


def test_removals_of_an_overtaken_generation_take_nothing_of_the_one_in_force(
    hostroot: "HostRoot", monkeypatch: pytest.MonkeyPatch
) -> None:
    """B32, clean-up: 8 takes a file away and is held up; 9 declares it again; 8 goes on and removes nothing."""
    slow, quick = hostroot.host(), hostroot.host()
    slow.take(hostroot.files(7, {PATH: "seven"}))
    slow.applier.bring()
    slow.take(hostroot.files(8, {}, removes=["files/motd/etc/motd"]))
    about_to_remove, go_on = held_up_before_its_write(slow, monkeypatch)
    worker = threading.Thread(target=slow.applier.bring)
    worker.start()
    assert about_to_remove.wait(10)
    quick.take(hostroot.files(9, {PATH: "seven"}))
    quick.applier.bring()
    go_on.set()
    worker.join(10)
    assert motd(hostroot) == "seven"
    assert [one.state for one in quick.applier.bring().elements] == ["in-force"]


def test_a_greater_epoch_wins_over_any_generation(hostroot: "HostRoot") -> None:
    host = hostroot.host()
    host.take(hostroot.files(900, {PATH: "old epoch"}))
    host.take(hostroot.files(1, {PATH: "new epoch"}, epoch=2))
    host.applier.bring()
    assert motd(hostroot) == "new epoch"
    with pytest.raises(Refusal, match="stale"):
        host.take(hostroot.files(901, {PATH: "old epoch"}))


def test_the_very_same_declaration_again_is_a_repeat_and_another_of_its_number_is_stale(hostroot: "HostRoot") -> None:
    host = hostroot.host()
    host.take(hostroot.files(1, {PATH: "one"}))
    with pytest.raises(Repeated):
        hostroot.host().take(hostroot.files(1, {PATH: "one"}))
    with pytest.raises(Refusal, match="stale"):
        host.take(hostroot.files(1, {PATH: "another"}))


async def test_one_that_is_overtaken_before_its_verdict_is_told_so(hostroot: "HostRoot") -> None:
    host = hostroot.host()
    await host.declared(hostroot.files(1, {PATH: "one"}))
    await host.declared(hostroot.files(2, {PATH: "two"}))
    async with hostroot.running(host):
        await until(lambda: len(hostroot.ears.heard) == 2, "two verdicts")
    first, second = sorted(hostroot.ears.heard, key=lambda one: one.generation)
    assert (first.verdict, "overtaken" in first.why) == ("failed", True)
    assert (second.verdict, second.generation) == ("in-force", 2)
    assert motd(hostroot) == "two"
