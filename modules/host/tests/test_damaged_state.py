"""The host's own state is damaged: it starts, says so, wipes nothing and lets no replay in (field case B49)."""

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh_runtime.testing.waiting import until
from mesh_runtime_host.judging import Refusal

if TYPE_CHECKING:
    from conftest import HostRoot

DAMAGES = {"empty": b"", "nul": b"\0" * 64, "half": b'{"statement": "{', "other": b'{"a": 1}', "not-utf-8": b"\xff\xfe"}
FILES = {"/etc/motd": "hello", "/etc/issue": "there"}
STATE = ["declaration.json", "floor.json", "ledger.json"]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("damaged", STATE)
async def test_b49_one_damaged_state_file_is_set_aside_and_said_and_the_machine_stays_as_it_is(
    hostroot: "HostRoot", damaged: str, damage: str
) -> None:
    """B49: an unreadable state file never means *empty*: the host starts, reports it, and wipes no managed file.

    Removal: modules/host/mesh_runtime_host/store.py: (self.directory / name).rename(self.directory / aside)
    Assertion: [aside.read_bytes() for aside in hostroot.state_dir.glob(f"{damaged}.damaged-*")] == [DAMAGES[damage]]
    """
    first = hostroot.host()
    first.take(hostroot.files(7, FILES))
    first.applier.bring()
    with first.store.locked():
        first.store.told((1, 7))
    before = hostroot.snapshot()
    (hostroot.state_dir / damaged).write_bytes(DAMAGES[damage])

    async with hostroot.running() as host:
        (report, *_) = await until(lambda: [one for one in hostroot.ears.heard if damaged in one.why], "a report of the damage")
        with pytest.raises(Refusal, match="stale"):
            host.take(hostroot.files(6, FILES))
        host.take(hostroot.files(8, FILES | {"/etc/new": "new"}))
        await until(lambda: (hostroot.root / "etc/new").exists(), "generation 8")

    assert {name: what for name, what in hostroot.snapshot().items() if name != "etc/new"} == before
    assert sorted((one.element, one.state) for one in report.elements) == [
        ("files/motd/etc/issue", "in-force"),
        ("files/motd/etc/motd", "in-force"),
    ]
    assert [aside.read_bytes() for aside in hostroot.state_dir.glob(f"{damaged}.damaged-*")] == [DAMAGES[damage]]


def test_a_state_file_that_is_a_directory_is_set_aside_too(hostroot: "HostRoot") -> None:
    first = hostroot.host()
    first.take(hostroot.files(7, FILES))
    first.applier.bring()
    (hostroot.state_dir / "ledger.json").unlink()
    (hostroot.state_dir / "ledger.json").mkdir()
    host = hostroot.host()
    assert [one.state for one in host.applier.bring().elements] == ["in-force", "in-force"]
    assert "ledger.json" in host.store.damage()[0]


@pytest.mark.parametrize("name", STATE)
def test_what_cannot_be_read_just_now_is_not_taken_for_damaged(hostroot: "HostRoot", monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A process without descriptors or memory to spare must not put away what stands there, and with it what it bounds a replay by."""
    host = hostroot.host()
    host.take(hostroot.files(7, FILES))
    host.applier.bring()
    before = {one.name: one.read_bytes() for one in hostroot.state_dir.iterdir()}
    read = Path.read_bytes

    def exhausted(path: Path) -> bytes:
        if path.name == name:
            raise OSError(errno.EMFILE, "Too many open files", str(path))
        return read(path)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Path, "read_bytes", exhausted)
        with pytest.raises(OSError, match="Too many open files"):
            host.applier.bring()
        with pytest.raises(OSError, match="Too many open files"):
            host.take(hostroot.files(8, FILES))
    assert {one.name: one.read_bytes() for one in hostroot.state_dir.iterdir()} == before
    assert host.store.damage() == ()
    assert [one.state for one in host.applier.bring().elements] == ["in-force", "in-force"]


def test_without_its_ledger_the_host_still_refuses_to_drop_what_it_put_there(hostroot: "HostRoot") -> None:
    first = hostroot.host()
    first.take(hostroot.files(7, FILES))
    first.applier.bring()
    (hostroot.state_dir / "ledger.json").write_bytes(b"")
    with pytest.raises(Refusal, match=r"unnamed-removal.*files/motd/etc/issue"):
        hostroot.host().take(hostroot.files(8, {"/etc/motd": "hello"}))


def test_without_its_ledger_what_is_not_as_declared_is_not_taken_for_its_own(hostroot: "HostRoot") -> None:
    first = hostroot.host()
    first.take(hostroot.files(7, FILES))
    first.applier.bring()
    (hostroot.state_dir / "ledger.json").write_bytes(b"")
    (hostroot.root / "etc/motd").write_text("somebody's")
    states = {one.element: one.state for one in hostroot.host().applier.bring().elements}
    assert states == {"files/motd/etc/motd": "failed", "files/motd/etc/issue": "in-force"}
    assert (hostroot.root / "etc/motd").read_text() == "somebody's"


def test_with_all_of_its_state_lost_it_takes_up_what_stands_exactly_as_declared(hostroot: "HostRoot") -> None:
    first = hostroot.host()
    first.take(hostroot.files(7, FILES))
    first.applier.bring()
    for name in STATE:
        (hostroot.state_dir / name).write_bytes(b"")
    host = hostroot.host()
    host.take(hostroot.files(8, FILES))
    assert [one.state for one in host.applier.bring().elements] == ["in-force", "in-force"]
    host.take(hostroot.files(9, {"/etc/motd": "hello"}, removes=["files/motd/etc/issue"]))
    host.applier.bring()
    assert sorted(hostroot.snapshot()) == ["etc", "etc/motd"]
