"""The host guards the last accepted declaration without a broker, and tells when it can (field case B53's first form)."""

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from mesh_runtime.testing.stopping import stopped_at
from mesh_runtime.testing.waiting import until
from mesh_runtime_host.applying import Brought
from mesh_runtime_host.host import Host
from mesh_runtime_host.rendering import KNOWS

if TYPE_CHECKING:
    from conftest import HostRoot

PATH = "/etc/motd"


def motd(hostroot: "HostRoot") -> str:
    file = hostroot.root / "etc/motd"
    return file.read_text() if file.is_file() else ""


async def test_what_is_deleted_or_changed_from_outside_is_restored_while_the_broker_is_away(hostroot: "HostRoot") -> None:
    """Restored within one cycle from the last good declaration; the event is told once the broker is back."""
    hostroot.host().take(hostroot.files(1, {PATH: "ours"}))
    hostroot.ears.deaf = True
    async with hostroot.running() as host:
        await until(lambda: motd(hostroot) == "ours", "the first apply")
        await cycles(host, 1)  # a file is there before the look that made it has ended
        shutil.rmtree(hostroot.root / "etc")
        await until(lambda: motd(hostroot) == "ours", "the deleted file back")
        await cycles(host, 1)
        (hostroot.root / "etc/motd").write_text("theirs")
        await until(lambda: motd(hostroot) == "ours", "the changed file back")
        await cycles(host, 1)
        (hostroot.root / "etc/motd").chmod(0o666)
        await until(lambda: (hostroot.root / "etc/motd").stat().st_mode & 0o777 == 0o644, "the mode back")
        await cycles(host, 1)
        hostroot.ears.deaf = False
        await until(lambda: hostroot.ears.heard, "a report")
    assert hostroot.ears.heard[0].verdict == "in-force"


async def test_a_mended_drift_is_told(hostroot: "HostRoot") -> None:
    async with hostroot.running() as host:
        await host.declared(hostroot.files(1, {PATH: "ours"}))
        await until(lambda: host.store.floor().told, "the verdict told")
        (hostroot.root / "etc/motd").write_text("theirs")
        (told,) = await until(lambda: [one for one in hostroot.ears.heard if "mended" in one.why], "what stands")
    assert "mended after a change from outside: files/motd/etc/motd" in told.why
    assert (told.verdict, told.generation, told.elements[0].state) == ("standing", 1, "in-force")


async def test_a_drift_that_cannot_be_mended_is_told_once_and_again_when_it_is_mended(hostroot: "HostRoot") -> None:
    async with hostroot.running() as host:
        await host.declared(hostroot.files(1, {PATH: "ours"}))
        await until(lambda: host.store.floor().told, "the verdict told")
        (hostroot.root / "etc/motd").unlink()
        (hostroot.root / "etc/motd").mkdir()
        await until(lambda: [one for one in hostroot.ears.heard if [each.state for each in one.elements] == ["failed"]], "the failure")
        await cycles(host, 5)
        (hostroot.root / "etc/motd").rmdir()
        await until(lambda: hostroot.ears.heard[-1].elements[0].state == "in-force", "the mended element")
    standing = [each.state for one in hostroot.ears.heard if one.verdict == "standing" for each in one.elements]
    assert standing.count("failed") <= 2  # deleted for a moment, then a directory
    assert standing[-1] == "in-force"


async def cycles(host: Host, count: int) -> None:
    """Wait until the host has looked so often again."""
    for _ in range(count):
        before = host._last

        def looked(before: Brought | None = before) -> bool:
            return host._last is not before

        await until(looked, "another look")


async def test_at_its_start_a_host_that_holds_nothing_tells_what_it_knows(hostroot: "HostRoot") -> None:
    async with hostroot.running():
        (report,) = await until(lambda: hostroot.ears.heard, "the first report")
    assert (report.verdict, report.epoch, report.generation, report.elements) == ("standing", 0, 0, ())
    assert report.knows == KNOWS == ("files", "overlay", "registry-trust")


async def test_at_its_start_a_host_tells_what_stands(hostroot: "HostRoot") -> None:
    async with hostroot.running() as host:
        await host.declared(hostroot.files(1, {PATH: "ours"}))
        await until(lambda: host.store.floor().told, "the verdict told")
    hostroot.ears.heard.clear()
    async with hostroot.running():
        await until(lambda: hostroot.ears.heard, "a report")
    (report,) = hostroot.ears.heard
    assert (report.verdict, report.mesh, report.generation) == ("standing", "test-mesh", 1)


async def test_a_verdict_that_was_not_heard_is_told_after_a_restart(hostroot: "HostRoot") -> None:
    """What was accepted is finished and told, though the process that accepted it is gone."""
    hostroot.ears.deaf = True
    async with hostroot.running() as host:
        await host.declared(hostroot.files(1, {PATH: "ours"}))
        await until(lambda: motd(hostroot) == "ours", "the apply")
    hostroot.ears.deaf = False
    async with hostroot.running() as restarted:
        await until(lambda: restarted.store.floor().told, "the verdict told")
    assert [(one.verdict, one.generation) for one in hostroot.ears.heard] == [("in-force", 1)]


async def test_what_was_accepted_but_not_begun_is_done_after_a_restart(hostroot: "HostRoot") -> None:
    hostroot.host().take(hostroot.files(1, {PATH: "ours"}))
    assert motd(hostroot) == ""
    async with hostroot.running():
        await until(lambda: motd(hostroot) == "ours", "the apply")


async def test_what_was_cut_right_after_it_was_stored_is_applied_when_it_comes_again(hostroot: "HostRoot") -> None:
    """
    Removal: modules/host/mesh_runtime_host/host.py: self._new.set()  # so that it is applied now, and not at the guard's next look
    Assertion: await until(lambda: motd(hostroot) == "ours", "the apply, long before the guard's next look")
    """
    async with hostroot.running(hostroot.host(guard=60.0)) as host:
        await until(lambda: hostroot.ears.heard, "the first look")
        signed = hostroot.files(1, {PATH: "ours"})
        with pytest.raises(asyncio.CancelledError):
            await stopped_at(0, host.declared(signed))
        await until(lambda: host.store.floor().generation == 1, "it is stored all the same")
        await host.declared(signed)
        await until(lambda: motd(hostroot) == "ours", "the apply, long before the guard's next look")


async def test_reports_wait_for_the_broker_and_the_newest_of_a_subject_is_told(hostroot: "HostRoot") -> None:
    hostroot.ears.deaf = True
    async with hostroot.running() as host:
        await host.declared(hostroot.files(1, {PATH: "one", "/etc/dir": "x"}))
        await until(lambda: motd(hostroot) == "one", "the first apply")
        await host.declared(hostroot.files(2, {PATH: "two"}))  # leaves one out
        await host.declared(hostroot.files(3, {PATH: "three", "/etc/dir": "x"}))
        await until(lambda: motd(hostroot) == "three", "the third apply")
        hostroot.ears.deaf = False
        await until(lambda: any((one.generation, one.verdict) == (3, "in-force") for one in hostroot.ears.heard), "the verdict on 3")
    verdicts = [(one.generation, one.verdict) for one in hostroot.ears.heard if one.verdict != "standing"]
    assert sorted(verdicts) in ([(1, "in-force"), (2, "refused"), (3, "in-force")], [(1, "failed"), (2, "refused"), (3, "in-force")])
    assert len(set(hostroot.ears.ids)) == len(hostroot.ears.ids)


async def test_a_declaration_is_taken_at_once_and_applied_after(hostroot: "HostRoot") -> None:
    """The delivery is not held while work is done: `declared` returns once the declaration is on disk, with nothing applied yet."""
    host = hostroot.host()
    await host.declared(hostroot.files(1, {PATH: "ours"}))
    assert (hostroot.state_dir / "declaration.json").exists()
    assert motd(hostroot) == ""


async def test_a_state_directory_that_cannot_be_used_is_told_and_waited_for(hostroot: "HostRoot") -> None:
    async with hostroot.running() as host:
        await host.declared(hostroot.files(1, {PATH: "ours"}))
        await until(lambda: host.store.floor().told, "the verdict told")
        hostroot.state_dir.rename(hostroot.state_dir.with_name("away"))
        hostroot.state_dir.write_text("a file in its place")
        told = await until(lambda: [one for one in hostroot.ears.heard if "own state cannot be used" in one.why], "the trouble")
        hostroot.state_dir.unlink()
        hostroot.state_dir.with_name("away").rename(hostroot.state_dir)
        (hostroot.root / "etc/motd").write_text("theirs")
        await until(lambda: motd(hostroot) == "ours", "guarding again")
    assert motd(hostroot) == "ours"
    assert len(told) == 1
