"""A host that is killed or refused by its disk in mid-write leaves whole files (field case B49)."""

import json
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mesh_runtime.contracts import SignedDeclaration
from mesh_runtime_host.judging import Repeated

if TYPE_CHECKING:
    from conftest import HostRoot

POINTS = ("write", "half", "fsync", "rename")
OLD, NEW = "old " * 5000, "new " * 7000
PATH = "/etc/secret"


def cut(hostroot: "HostRoot", under: Path, point: str, fault: str, *, nth: int = 1, take: SignedDeclaration | None = None) -> Any:
    """Run a host that is cut; its exit code, and what it printed."""
    told = {"root": str(hostroot.root), "state_dir": str(hostroot.state_dir), "key_file": str(hostroot.key_file), "under": str(under)}
    told |= {"point": point, "fault": fault, "nth": nth, "take": take and take.model_dump()}  # type: ignore[dict-item]  # JSON
    command = [sys.executable, str(Path(__file__).with_name("cut_apply.py")), json.dumps(told)]
    return subprocess.run(command, capture_output=True, text=True, timeout=25, check=False)


def left_beside(directory: Path) -> list[Path]:
    return sorted(directory.rglob(".mesh-*"))


@pytest.mark.parametrize("point", POINTS)
def test_b49_a_host_killed_while_it_writes_leaves_the_old_file_whole_and_the_next_one_finishes(hostroot: "HostRoot", point: str) -> None:
    """B49: SIGKILL before the write, after half the bytes, before fsync, before rename. Old or new, whole, with its mode; then new.

    Removal: modules/host/mesh_runtime_host/disk.py: os.fsync(file)
    Assertion: ran.returncode == -signal.SIGKILL
    """
    host = hostroot.host()
    host.take(hostroot.files(1, {PATH: OLD}, mode=0o640))
    host.applier.bring()
    host.take(hostroot.files(2, {PATH: NEW}, mode=0o600))

    ran = cut(hostroot, hostroot.root, point, "kill")
    assert ran.returncode == -signal.SIGKILL, ran.stderr

    target = hostroot.root / PATH.lstrip("/")
    assert target.read_text() == OLD
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in left_beside(hostroot.root)] == [0]

    finished = hostroot.host().applier.bring()
    assert [one.state for one in finished.elements] == ["in-force"]
    assert target.read_text() == NEW
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert left_beside(hostroot.root) == []


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("point", POINTS)
def test_b49_a_disk_that_refuses_a_write_leaves_the_old_file_whole_and_the_element_failed(
    hostroot: "HostRoot", point: str, fault: str
) -> None:
    """B49: ENOSPC and EIO at each point: the old file stands whole, the element says why, nothing is left beside it.

    Removal: modules/host/mesh_runtime_host/disk.py: sweep(directory, name)  # what was begun is taken back
    Assertion: left_beside(hostroot.root) == []
    """
    host = hostroot.host()
    host.take(hostroot.files(1, {PATH: OLD}, mode=0o640))
    host.applier.bring()
    host.take(hostroot.files(2, {PATH: NEW}, mode=0o600))

    ran = cut(hostroot, hostroot.root, point, fault)
    assert ran.returncode == 0, ran.stderr
    (element,) = json.loads(ran.stdout.splitlines()[-1])
    assert element["state"] == "stale"
    assert {"ENOSPC": "No space left", "EIO": "Input/output error"}[fault] in element["detail"]

    target = hostroot.root / PATH.lstrip("/")
    assert target.read_text() == OLD
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert left_beside(hostroot.root) == []


def test_a_file_that_is_new_is_there_whole_or_not_at_all(hostroot: "HostRoot") -> None:
    """B49: the same for a file that did not exist: after half the bytes there is nothing at its name."""
    host = hostroot.host()
    host.take(hostroot.files(1, {PATH: NEW}, mode=0o600))
    assert cut(hostroot, hostroot.root, "half", "kill").returncode == -signal.SIGKILL
    assert not (hostroot.root / PATH.lstrip("/")).exists()
    assert [one.state for one in hostroot.host().applier.bring().elements] == ["in-force"]
    assert left_beside(hostroot.root) == []


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_a_host_killed_while_it_accepts_has_accepted_it_or_not(hostroot: "HostRoot", point: str, nth: int) -> None:
    """B49, its own state: killed at any point of either file, the next start knows one of the two declarations, and goes on."""
    host = hostroot.host()
    host.take(hostroot.files(1, {PATH: OLD}))
    host.applier.bring()
    second = hostroot.files(2, {PATH: NEW})

    assert cut(hostroot, hostroot.state_dir, point, "kill", nth=nth, take=second).returncode == -signal.SIGKILL

    restarted = hostroot.host()
    restarted.applier.bring()
    assert restarted.store.damage() == ()
    target = hostroot.root / PATH.lstrip("/")
    assert target.read_text() == (OLD if nth == 1 else NEW)
    try:
        restarted.take(second)
    except Repeated:
        assert nth == 2  # at the second file it was accepted
    restarted.applier.bring()
    assert target.read_text() == NEW
    assert left_beside(hostroot.state_dir) == []


@pytest.mark.parametrize("nth", [1, 2])
def test_a_host_killed_while_it_writes_its_ledger_still_owns_what_it_wrote(hostroot: "HostRoot", nth: int) -> None:
    """B49: killed at the ledger before or after the files: the next one finishes, takes nothing for foreign, and can take it away."""
    host = hostroot.host()
    host.take(hostroot.files(1, {PATH: OLD, "/etc/b": "b"}))
    assert cut(hostroot, hostroot.state_dir, "rename", "kill", nth=nth).returncode == -signal.SIGKILL
    assert [one.state for one in hostroot.host().applier.bring().elements] == ["in-force", "in-force"]
    again = hostroot.host()
    again.take(hostroot.files(2, {"/etc/b": "b"}, removes=["files/motd/etc/secret"]))
    assert [one.state for one in again.applier.bring().elements] == ["in-force", "removed"]
    assert sorted(hostroot.snapshot()) == ["etc", "etc/b"]
