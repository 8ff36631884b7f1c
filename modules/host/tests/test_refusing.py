"""What a host refuses: said with why, and nothing on the machine is touched."""

from typing import TYPE_CHECKING, Any

import pytest

from mesh_runtime.contracts import File, Files, NoStore, Overlay, Peer, SignedDeclaration, TrustStore
from mesh_runtime.testing.waiting import until
from mesh_runtime.trust import SigningKey
from mesh_runtime_host.judging import Refusal

if TYPE_CHECKING:
    from conftest import HostRoot

OVERLAY = Overlay(address="10.9.0.1", peers=(Peer(machine="node-2", address="10.9.0.2"),))
TRUST = TrustStore(address="store.mesh:5000", ca="a CA")


def files(*pairs: tuple[str, str]) -> Files:
    return Files(files=tuple(File(path=path, content=content) for path, content in pairs))


MOTD = ("motd", files(("/etc/motd", "hello\n")))


def refused(hostroot: "HostRoot", signed: SignedDeclaration) -> Refusal:
    """How a host at generation 4 refuses `signed`, having touched nothing."""
    host = hostroot.host()
    host.take(hostroot.declaration(4, MOTD, ("networking", OVERLAY), ("networking", TRUST)))
    host.applier.bring()
    before, state = hostroot.snapshot(), (hostroot.state_dir / "declaration.json").read_bytes()
    try:
        host.take(signed)
    except Refusal as refusal:
        host.applier.bring()
        assert hostroot.snapshot() == before
        assert (hostroot.state_dir / "declaration.json").read_bytes() == state
        return refusal
    raise AssertionError("it was accepted")


ALL = (MOTD, ("networking", OVERLAY), ("networking", TRUST))
KEPT = ["files/motd/etc/motd", "overlay/networking", "registry-trust/networking/store.mesh:5000"]


def test_a_statement_that_another_key_signed_is_refused(hostroot: "HostRoot") -> None:
    signed = hostroot.declaration(5, *ALL)
    forged = signed.model_copy(update={"signature": SigningKey.generate().sign(signed.statement.encode())})
    refusal = refused(hostroot, forged)
    assert (refusal.code, refusal.number) == ("not-signed", (0, 0))


@pytest.mark.parametrize("signature", ["", "!", "AAAA", "é"])
def test_a_statement_without_a_signature_is_refused(hostroot: "HostRoot", signature: str) -> None:
    signed = hostroot.declaration(5, *ALL).model_copy(update={"signature": signature})
    assert refused(hostroot, signed).code == "not-signed"


def test_one_changed_byte_is_refused_though_it_means_the_same(hostroot: "HostRoot") -> None:
    signed = hostroot.declaration(5, *ALL)
    changed = signed.model_copy(update={"statement": signed.statement + " "})
    assert refused(hostroot, changed).code == "not-signed"


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"mesh": "other"}, "other-mesh", "'other'"),
        ({"machine": "node-2"}, "other-machine", "'node-2'"),
        ({"generation": 3}, "stale", "generation 3 of epoch 1 is not above generation 4 of epoch 1"),
        ({"generation": 4, "revision": 9}, "stale", "generation 4"),
        ({"epoch": 0, "generation": 99}, "stale", "epoch 0"),
        ({"surprise": 1}, "malformed", "surprise"),
        ({"sections": None}, "malformed", "sections"),
        ({"generation": None}, "malformed", "generation"),
    ],
)
def test_a_statement_for_others_or_from_the_past_or_of_another_form_is_refused(
    hostroot: "HostRoot", changes: dict[str, Any], code: str, words: str
) -> None:
    refusal = refused(hostroot, hostroot.sign(hostroot.statement(5, *ALL) | changes))
    if code in ("other-mesh", "other-machine"):
        assert refusal.number == (0, 0), "the number of another's declaration says nothing of one of ours"
    assert refusal.code == code
    assert words in str(refusal)


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '{"mesh": "test-mesh"}', "\x00"])
def test_what_cannot_be_read_is_refused_though_it_is_signed(hostroot: "HostRoot", text: str) -> None:
    assert refused(hostroot, hostroot.sign(text)).code == "malformed"


@pytest.mark.parametrize(
    ("section", "code", "words"),
    [
        ({"module": "x", "section": "containers", "body": {}}, "unknown-section", "containers of x"),
        ({"module": "x", "section": "files", "body": {"files": [], "owner": "root"}}, "malformed", "owner"),
        ({"module": "x", "section": "files", "body": {"files": [{"path": "/a", "content": "", "uid": 0}]}}, "malformed", "uid"),
        ({"module": "x", "section": "files", "body": None}, "malformed", "body"),
        ({"module": "x", "section": "files", "body": {}}, "malformed", "files"),
        ({"module": "x", "section": "files", "body": {"files": [{"path": "etc/a", "content": ""}]}}, "malformed", "absolute"),
        ({"module": "x", "section": "files", "body": {"files": [{"path": "/../a", "content": ""}]}}, "malformed", "absolute"),
        ({"module": "x", "section": "files", "body": {"files": [{"path": "/a", "content": "", "mode": 0o4755}]}}, "malformed", "mode"),
        ({"module": "../x", "section": "files", "body": {"files": []}}, "malformed", "'../x'"),
        ({"module": "motd", "section": "files", "body": {"files": []}}, "malformed", "twice"),
        ({"module": "x", "section": "registry-trust", "body": {"kind": "trust-store", "address": "a/b", "ca": ""}}, "malformed", "address"),
        ({"module": "x", "section": "registry-trust", "body": {"kind": "perhaps"}}, "malformed", "kind"),
    ],
)
def test_a_section_that_is_not_known_to_the_last_field_refuses_the_whole(
    hostroot: "HostRoot", section: dict[str, Any], code: str, words: str
) -> None:
    statement = hostroot.statement(5, *ALL)
    refusal = refused(hostroot, hostroot.sign(statement | {"sections": [*statement["sections"], section]}))
    assert refusal.code == code
    assert words in str(refusal)


@pytest.mark.parametrize("left_out", range(3))
def test_what_is_held_and_merely_left_out_refuses_the_whole(hostroot: "HostRoot", left_out: int) -> None:
    """Nothing is ever removed by being left out.

    Removal: modules/host/mesh_runtime_host/host.py: check_removals(statement, elements, self._held())
    Assertion: it was accepted
    """
    sections = [section for number, section in enumerate(ALL) if number != left_out]
    refusal = refused(hostroot, hostroot.declaration(5, *sections))
    assert refusal.code == "unnamed-removal"
    assert KEPT[left_out] in str(refusal)


def test_an_empty_declaration_refuses_and_names_everything(hostroot: "HostRoot") -> None:
    refusal = refused(hostroot, hostroot.declaration(5))
    assert all(name in str(refusal) for name in KEPT)


def test_the_absence_of_a_store_takes_no_trust_away_that_is_not_named(hostroot: "HostRoot") -> None:
    refusal = refused(hostroot, hostroot.declaration(5, MOTD, ("networking", OVERLAY), ("networking", NoStore())))
    assert refusal.code == "unnamed-removal"


def test_what_is_declared_and_to_be_removed_at_once_is_refused(hostroot: "HostRoot") -> None:
    assert refused(hostroot, hostroot.declaration(5, *ALL, removes=KEPT[:1])).code == "contradiction"


@pytest.mark.parametrize(
    "other",
    [
        ("zz", files(("/etc/motd", "mine\n"))),
        ("zz", OVERLAY),
        ("zz", TRUST),
        ("zz", files(("/etc/mesh/overlay.json", "{}"))),
        ("zz", files(("/etc/docker/certs.d/store.mesh:5000/ca.crt", ""))),
        ("zz", TRUST.model_copy(update={"address": "store.mesh:5000"})),
        ("zz", files(("/etc/motd/sub", ""))),
        ("zz", files(("/etc/docker", ""))),
        ("zz", files(("/srv/a", "1"), ("/srv/a", "2"))),
    ],
)
def test_two_that_claim_one_path_are_both_named(hostroot: "HostRoot", other: Any) -> None:
    refusal = refused(hostroot, hostroot.declaration(5, *ALL, other))
    assert refusal.code == "claimed-twice"
    assert "/zz" in str(refusal)


def test_the_hosts_own_state_and_key_are_closed_to_every_declaration(hostroot: "HostRoot") -> None:
    host = hostroot.host(root=hostroot.root.parent)
    for path in (f"/state/{hostroot.state_dir.name}/floor.json", "/state", "/controller.pub", "/controller.pub/x"):
        with pytest.raises(Refusal) as refusal:
            host.take(hostroot.declaration(1, ("zz", files((path, "mine")))))
        assert refusal.value.code == "closed-path"
    assert host.applier.bring().elements == ()


async def test_a_refusal_is_told_with_why_and_what_stands(hostroot: "HostRoot") -> None:
    async with hostroot.running() as host:
        await host.declared(hostroot.declaration(4, MOTD))
        await until(lambda: [one for one in hostroot.ears.heard if one.verdict == "in-force"], "the verdict on 4")
        await host.declared(hostroot.declaration(5))
        told = await until(lambda: [one for one in hostroot.ears.heard if one.verdict == "refused"], "the refusal")
    assert (told[0].epoch, told[0].generation) == (1, 5)
    assert told[0].why.startswith("unnamed-removal: ")
    assert "stale since 20" in told[0].why
    assert [(one.element, one.state) for one in told[0].elements] == [("files/motd/etc/motd", "in-force")]


async def test_a_declaration_that_cannot_be_stored_is_refused_and_said(hostroot: "HostRoot", monkeypatch: pytest.MonkeyPatch) -> None:
    async with hostroot.running() as host:
        monkeypatch.setattr(host.store, "accept", _disk_full)
        await host.declared(hostroot.declaration(4, MOTD))
        told = await until(lambda: [one for one in hostroot.ears.heard if one.verdict == "refused"], "the refusal")
    assert told[0].why.startswith("not-stored: ")
    assert hostroot.snapshot() == {}


def _disk_full(*args: object) -> None:
    raise OSError(28, "No space left on device")


async def test_without_the_controllers_key_the_host_is_not_ready_and_believes_nothing(hostroot: "HostRoot") -> None:
    key = hostroot.key_file.read_text()
    host = hostroot.host()
    hostroot.key_file.unlink()
    with pytest.raises(Exception, match="is not there yet"):
        await host.prepare()
    with pytest.raises(Refusal, match="no-key"):
        host.take(hostroot.declaration(1, MOTD))
    hostroot.key_file.write_text("not a key")
    with pytest.raises(ValueError, match="64 hex digits"):
        await host.prepare()
    hostroot.key_file.write_text(key)
    await host.prepare()
    host.take(hostroot.declaration(1, MOTD))
