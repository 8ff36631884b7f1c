"""Applying: only what is ours, never out of the root, each element by itself, and finished only when it was seen again."""

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mesh_runtime.contracts import (
    DeclaredSection,
    ElementReport,
    File,
    Files,
    NoStore,
    Overlay,
    Peer,
    TrustStore,
    element_digest,
    element_name,
)
from mesh_runtime_host import disk
from mesh_runtime_host.rendering import ORDER, elements_of, read_section

if TYPE_CHECKING:
    from conftest import HostRoot

OVERLAY = Overlay(address="10.9.0.1", peers=(Peer(machine="node-2", address="10.9.0.2"),))
TRUST = TrustStore(address="store.mesh:5000", ca="a CA\n")
MOTD = Files(files=(File(path="/etc/motd", content="héllo\n", mode=0o640), File(path="/srv/x/y", content="", mode=0o400)))


def states(reports: tuple[ElementReport, ...]) -> dict[str, str]:
    return {one.element: one.state for one in reports}


def test_every_element_is_reported_in_force_with_the_digest_of_what_was_declared(hostroot: "HostRoot") -> None:
    host = hostroot.host()
    sections = (("motd", MOTD), ("networking", OVERLAY), ("networking", TRUST))
    host.take(hostroot.declaration(1, *sections))
    reported = {one.element: (one.state, one.digest) for one in host.applier.bring().elements}
    declared = {
        element_name(section.section, module, key): ("in-force", element_digest(value))
        for module, section in sections
        for key, value in section.elements().items()
    }
    assert reported == declared
    assert (hostroot.root / "etc/motd").read_text() == "héllo\n"
    assert stat.S_IMODE((hostroot.root / "srv/x/y").stat().st_mode) == 0o400
    assert Overlay.model_validate_json((hostroot.root / "etc/mesh/overlay.json").read_text()) == OVERLAY
    assert (hostroot.root / "etc/docker/certs.d/store.mesh:5000/ca.crt").read_text() == TRUST.ca


def test_sections_are_applied_in_the_order_of_the_design(hostroot: "HostRoot", monkeypatch: pytest.MonkeyPatch) -> None:
    """Overlay, registry trust, files, whatever order the declaration lists them in.

    Removal: modules/host/mesh_runtime_host/judging.py: elements.sort(key=lambda one: ORDER.index(one.section))
    Assertion: written == ["overlay.json", "ca.crt", "motd", "y"]
    """
    written: list[str] = []
    real = disk.write_whole

    def noted(directory: int, name: str, content: bytes, mode: int) -> None:
        written.append(name)
        real(directory, name, content, mode)

    host = hostroot.host()
    host.take(hostroot.declaration(1, ("motd", MOTD), ("networking", TRUST), ("networking", OVERLAY)))
    monkeypatch.setattr(disk, "write_whole", noted)
    host.applier.bring()
    assert written == ["overlay.json", "ca.crt", "motd", "y"]
    assert ORDER == ("overlay", "registry-trust", "files")


def test_a_file_that_is_deleted_right_after_the_write_is_no_success(hostroot: "HostRoot", monkeypatch: pytest.MonkeyPatch) -> None:
    """B51: success is what was read back after the apply, never the absence of errors.

    Removal: modules/host/mesh_runtime_host/applying.py: self._look_at_all(work)  # read back from the disk, after the act
    Assertion: states(brought.elements) == {"files/motd/etc/motd": "failed", "files/motd/srv/x/y": "in-force"}
    """
    real = disk.write_whole

    def snatched(directory: int, name: str, content: bytes, mode: int) -> None:
        real(directory, name, content, mode)
        if name == "motd":
            os.unlink(name, dir_fd=directory)

    host = hostroot.host()
    host.take(hostroot.declaration(1, ("motd", MOTD)))
    monkeypatch.setattr(disk, "write_whole", snatched)
    brought = host.applier.bring()
    assert states(brought.elements) == {"files/motd/etc/motd": "failed", "files/motd/srv/x/y": "in-force"}
    assert "nothing at /etc/motd" in brought.failures[0]
    monkeypatch.undo()
    assert set(states(host.applier.bring().elements).values()) == {"in-force"}


def test_a_directory_in_the_files_place_fails_that_element_and_no_other(hostroot: "HostRoot") -> None:
    (hostroot.root / "etc/motd").mkdir(parents=True)
    host = hostroot.host()
    host.take(hostroot.declaration(1, ("motd", MOTD)))
    brought = host.applier.bring()
    assert states(brought.elements) == {"files/motd/etc/motd": "failed", "files/motd/srv/x/y": "in-force"}
    assert "a directory" in brought.failures[0]
    (hostroot.root / "etc/motd").rmdir()
    assert set(states(host.applier.bring().elements).values()) == {"in-force"}


def test_a_file_in_a_directorys_place_fails_that_element_and_no_other(hostroot: "HostRoot") -> None:
    (hostroot.root / "srv").write_text("a file")
    host = hostroot.host()
    host.take(hostroot.declaration(1, ("motd", MOTD)))
    assert states(host.applier.bring().elements) == {"files/motd/etc/motd": "in-force", "files/motd/srv/x/y": "failed"}
    assert (hostroot.root / "srv").read_text() == "a file"


@pytest.mark.parametrize("kind", ["file", "link", "fifo"])
def test_what_is_not_ours_is_left_as_it_is_and_named(hostroot: "HostRoot", kind: str) -> None:
    foreign = hostroot.root / "etc/motd"
    foreign.parent.mkdir()
    match kind:
        case "file":
            foreign.write_text("theirs")
        case "link":
            foreign.symlink_to("x")
        case _:
            os.mkfifo(foreign)
    before = hostroot.snapshot()
    host = hostroot.host()
    host.take(hostroot.declaration(1, ("motd", MOTD)))
    brought = host.applier.bring()
    assert states(brought.elements)["files/motd/etc/motd"] == "failed"
    assert "not the host's stands at /etc/motd" in brought.failures[0]
    assert hostroot.snapshot() == before | {name: what for name, what in hostroot.snapshot().items() if name.startswith("srv")}
    host.take(hostroot.declaration(2, removes=["files/motd/etc/motd", "files/motd/srv/x/y"]))
    host.applier.bring()
    assert hostroot.snapshot() == before


def test_a_foreign_file_that_is_exactly_as_declared_is_taken_up(hostroot: "HostRoot") -> None:
    (hostroot.root / "etc").mkdir()
    (hostroot.root / "etc/motd").write_text("héllo\n")
    (hostroot.root / "etc/motd").chmod(0o640)
    host = hostroot.host()
    host.take(hostroot.declaration(1, ("motd", MOTD)))
    assert states(host.applier.bring().elements)["files/motd/etc/motd"] == "in-force"


@pytest.mark.parametrize("target", ["outside", "../outside", "etc/../../outside"])
def test_a_link_on_the_way_that_leaves_the_root_is_not_followed(hostroot: "HostRoot", target: str) -> None:
    """Nothing is written outside the root.

    Removal: modules/host/mesh_runtime_host/beneath.py: refuse_absolute(target, root)
    Assertion: states(brought.elements) == {"files/motd/etc/motd": "in-force", "files/motd/srv/x/y": "failed"}
    """
    outside = hostroot.root.parent / "outside"
    outside.mkdir()
    (hostroot.root / "etc").mkdir()
    (hostroot.root / "srv").symlink_to(outside if target == "outside" else target)
    host = hostroot.host()
    host.take(hostroot.declaration(1, ("motd", MOTD)))
    brought = host.applier.bring()
    assert states(brought.elements) == {"files/motd/etc/motd": "in-force", "files/motd/srv/x/y": "failed"}
    assert "leaves the root" in brought.failures[0]
    assert list(outside.iterdir()) == []


def test_a_link_on_the_way_that_stays_beneath_the_root_is_followed(hostroot: "HostRoot") -> None:
    (hostroot.root / "var/real").mkdir(parents=True)
    (hostroot.root / "srv").symlink_to("etc/../var/./real")
    (hostroot.root / "etc").mkdir()
    host = hostroot.host()
    host.take(hostroot.declaration(1, ("motd", MOTD)))
    assert set(states(host.applier.bring().elements).values()) == {"in-force"}
    assert (hostroot.root / "var/real/x/y").exists()


def test_a_circle_of_links_fails_the_element(hostroot: "HostRoot") -> None:
    (hostroot.root / "srv").symlink_to("srv")
    host = hostroot.host()
    host.take(hostroot.declaration(1, ("motd", MOTD)))
    assert states(host.applier.bring().elements)["files/motd/srv/x/y"] == "failed"


def test_a_link_does_not_lead_into_the_hosts_own_state(hostroot: "HostRoot") -> None:
    """By whatever name it is reached.

    Removal: modules/host/mesh_runtime_host/beneath.py: refuse_own(file, own)
    Assertion: "own state directory" in brought.failures[0]
    """
    host = hostroot.host(root=hostroot.root.parent)
    host.take(hostroot.declaration(1))
    (hostroot.root.parent / "srv").symlink_to(os.path.relpath(hostroot.state_dir.parent, hostroot.root.parent))
    into = Files(files=(File(path=f"/srv/{hostroot.state_dir.name}/floor.json", content="mine"),))
    host.take(hostroot.declaration(2, ("motd", into)))
    brought = host.applier.bring()
    assert "own state directory" in brought.failures[0]
    assert "mine" not in (hostroot.state_dir / "floor.json").read_text()


def test_what_is_named_for_removal_goes_with_the_directories_made_for_it_and_nothing_else(hostroot: "HostRoot") -> None:
    (hostroot.root / "etc").mkdir()
    (hostroot.root / "etc/theirs").write_text("theirs")
    host = hostroot.host()
    host.take(hostroot.declaration(1, ("motd", MOTD), ("networking", TRUST), ("networking", OVERLAY)))
    host.applier.bring()
    names = ["files/motd/srv/x/y", "registry-trust/networking/store.mesh:5000", "overlay/networking", "files/motd/etc/motd", "files/a/b"]
    host.take(hostroot.declaration(2, ("networking", NoStore()), removes=names))
    assert states(host.applier.bring().elements) == dict.fromkeys(names, "removed")
    assert list(hostroot.snapshot()) == ["etc", "etc/theirs"]
    assert host.applier.bring().failures == ()


def test_a_directory_made_for_two_stays_until_the_second_goes_and_one_that_others_use_stays(hostroot: "HostRoot") -> None:
    both = Files(files=(File(path="/opt/a/1", content="1"), File(path="/opt/a/2", content="2")))
    host = hostroot.host()
    host.take(hostroot.declaration(1, ("motd", both)))
    host.applier.bring()
    host.take(hostroot.files(2, {"/opt/a/2": "2"}, removes=["files/motd/opt/a/1"]))
    host.applier.bring()
    assert list(hostroot.snapshot()) == ["opt", "opt/a", "opt/a/2"]
    (hostroot.root / "opt/theirs").write_text("")
    host.take(hostroot.files(3, {}, removes=["files/motd/opt/a/2"]))
    host.applier.bring()
    assert list(hostroot.snapshot()) == ["opt", "opt/theirs"]


def test_what_is_gone_already_is_done(hostroot: "HostRoot") -> None:
    host = hostroot.host()
    host.take(hostroot.files(1, {"/etc/motd": "1"}))
    host.applier.bring()
    (hostroot.root / "etc/motd").unlink()
    (hostroot.root / "etc").rmdir()
    host.take(hostroot.files(2, {}, removes=["files/motd/etc/motd"]))
    assert states(host.applier.bring().elements) == {"files/motd/etc/motd": "removed"}


def test_a_removal_that_fails_is_said_and_done_later(hostroot: "HostRoot") -> None:
    host = hostroot.host()
    host.take(hostroot.files(1, {"/etc/motd": "1"}))
    host.applier.bring()
    (hostroot.root / "etc/motd").unlink()
    (hostroot.root / "etc/motd").mkdir()
    host.take(hostroot.files(2, {}, removes=["files/motd/etc/motd"]))
    assert states(host.applier.bring().elements) == {"files/motd/etc/motd": "failed"}
    (hostroot.root / "etc/motd").rmdir()
    assert states(host.applier.bring().elements) == {"files/motd/etc/motd": "removed"}


def test_an_element_that_moves_to_another_module_keeps_its_file(hostroot: "HostRoot") -> None:
    host = hostroot.host()
    host.take(hostroot.files(1, {"/etc/motd": "1"}))
    host.applier.bring()
    moved = Files(files=(File(path="/etc/motd", content="2"),))
    host.take(hostroot.declaration(2, ("greeting", moved), removes=["files/motd/etc/motd"]))
    assert states(host.applier.bring().elements) == {"files/greeting/etc/motd": "in-force", "files/motd/etc/motd": "removed"}
    assert (hostroot.root / "etc/motd").read_text() == "2"


def test_an_older_version_that_still_stands_is_reported_stale_with_its_own_digest(
    hostroot: "HostRoot", monkeypatch: pytest.MonkeyPatch
) -> None:
    host = hostroot.host()
    host.take(hostroot.files(1, {"/etc/motd": "1"}))
    (first,) = host.applier.bring().elements
    host.take(hostroot.files(2, {"/etc/motd": "2"}))
    monkeypatch.setattr(disk, "write_whole", _full)
    (second,) = host.applier.bring().elements
    assert (second.state, second.digest) == ("stale", first.digest)
    assert "No space left" in second.detail
    (third,) = host.applier.bring().elements
    assert (third.state, third.digest) == ("stale", first.digest)


def _full(*args: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_missing_root_fails_every_element_and_is_not_made(hostroot: "HostRoot") -> None:
    host = hostroot.host(root=hostroot.root / "not-there")
    host.take(hostroot.declaration(1, ("motd", MOTD)))
    assert set(states(host.applier.bring().elements).values()) == {"failed"}
    assert hostroot.snapshot() == {}


def test_a_body_is_rendered_the_same_however_it_is_written(tmp_path: Path) -> None:
    body: dict[str, Any] = {"address": "10.9.0.1", "peers": [{"address": "10.9.0.2", "machine": "node-2"}]}
    (one,) = elements_of("networking", read_section(DeclaredSection(module="networking", section="overlay", body=body)))
    (other,) = elements_of("networking", OVERLAY)
    assert one == other


def test_a_root_that_is_gone_is_no_machine_on_which_nothing_stands(hostroot: "HostRoot") -> None:
    """A disk that is not mounted: nothing counts as removed, nothing is made in its place, and back again it is found as it was."""
    host = hostroot.host()
    host.take(hostroot.files(1, {"/etc/motd": "hello", "/etc/issue": "there"}))
    host.applier.bring()
    away = hostroot.root.rename(hostroot.root.with_name("away"))
    host.take(hostroot.files(2, {"/etc/motd": "hello"}, removes=["files/motd/etc/issue"]))
    brought = host.applier.bring()
    assert {one.element: one.state for one in brought.elements} == {"files/motd/etc/motd": "failed", "files/motd/etc/issue": "failed"}
    assert all("the root is not there" in one.detail for one in brought.elements)
    away.rename(hostroot.root)
    host.applier.bring()
    assert sorted(hostroot.snapshot()) == ["etc", "etc/motd"]
