"""What our issuer makes passes strict verification on every supported Python (B08), and is dated back (B06)."""

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from mesh_runtime.logging import mask_text
from mesh_runtime.trust import Authority, Issued, client_context, files, pin_of
from tests.trust.conftest import NAME, server_context
from tests.trust.minting import careless_ca

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> str | None:
    """A handshake in memory; returns the protocol's version, raises what the client raises."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname=name)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        for side in (asking, answering):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return asking.version()


def refusal(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> str:
    """Why the client refuses the server's certificate; empty if it does not."""
    try:
        handshake(client, server, name)
    except ssl.SSLCertVerificationError as refused:
        return refused.verify_message
    return ""


@pytest.mark.parametrize("name", [NAME, "other.mesh", "10.0.0.1", "fd00::1"])
def test_b08_what_it_issues_passes_strict_verification_for_each_of_its_names(tmp_path: Path, authority: Authority, name: str) -> None:
    """The flag is set whatever the interpreter's default is.

    Removal: mesh_runtime/trust/issuer.py: builder = builder.add_extension(self._authority_key_identifier(), critical=False)
    Assertion: assert refusal(client, server, name) == ""
    """
    server = server_context(tmp_path, authority.issue_server([NAME, "other.mesh", "10.0.0.1", "fd00::1"]))
    client = client_context(authority.der)
    assert client.verify_flags & ssl.VERIFY_X509_STRICT
    assert refusal(client, server, name) == ""


def test_control_without_an_authority_key_identifier_it_is_refused(tmp_path: Path) -> None:
    ca = careless_ca(strict=True)
    with pytest.raises(ssl.SSLCertVerificationError, match="Missing Authority Key Identifier"):
        handshake(client_context(ca.der), server_context(tmp_path, ca.leaf([NAME])), NAME)


def test_control_with_one_it_is_accepted(tmp_path: Path) -> None:
    ca = careless_ca(strict=True)
    assert handshake(client_context(ca.der), server_context(tmp_path, ca.leaf([NAME], authority_key_identifier=True)), NAME)


def test_a_leaf_holds_what_the_strictest_verifiers_ask_for(authority: Authority) -> None:
    leaf = x509.load_pem_x509_certificate(authority.issue_server([NAME]).certificate)
    ca = x509.load_der_x509_certificate(authority.der)

    own = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == own
    assert leaf.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest != own
    for certificate, is_ca in ((leaf, False), (ca, True)):
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
        assert (constraints.critical, constraints.value.ca, usage.critical) == (True, is_ca, True)
        assert (usage.value.key_cert_sign, usage.value.digital_signature) == (is_ca, not is_ca)
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"
    purposes = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_certificates_are_dated_back_by_at_least_five_minutes() -> None:
    authority = Authority.create("mesh", now=lambda: NOW)
    leaf = x509.load_pem_x509_certificate(authority.issue_server([NAME], now=lambda: NOW, lifetime=timedelta(days=2)).certificate)
    for certificate in (leaf, x509.load_der_x509_certificate(authority.der)):
        assert certificate.not_valid_before_utc <= NOW - timedelta(minutes=5)
    assert leaf.not_valid_after_utc == NOW + timedelta(days=2)


def test_an_authority_is_loaded_as_it_was_saved_and_its_key_is_for_its_owner_alone(tmp_path: Path, authority: Authority) -> None:
    authority.save(tmp_path)
    loaded = Authority.load(tmp_path)
    assert (loaded.pin, loaded.der) == (authority.pin, authority.der)
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "ca.pem").stat().st_mode) == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.key", "ca.pem"]
    server = server_context(tmp_path, loaded.issue_server([NAME]))
    assert handshake(client_context(authority.pem), server, NAME)


def test_an_authority_is_never_written_over(tmp_path: Path, authority: Authority) -> None:
    authority.save(tmp_path)
    before = (tmp_path / "ca.key").read_bytes()
    with pytest.raises(FileExistsError):
        Authority.create("another").save(tmp_path)
    assert (tmp_path / "ca.key").read_bytes() == before


def test_an_authority_whose_saving_was_cut_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key is written last, so that nothing stands for an authority that is not there in whole."""
    write = files.write_whole
    written: list[Path] = []

    def cut_after_one(path: Path, data: bytes, mode: int) -> None:
        if written:
            raise OSError(28, "No space left on device")
        written.append(path)
        write(path, data, mode)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("mesh_runtime.trust.issuer.write_whole", cut_after_one)
        with pytest.raises(OSError, match="No space"):
            Authority.create("cut").save(tmp_path)
    again = Authority.create("again")
    again.save(tmp_path)
    assert Authority.load(tmp_path).pin == again.pin


def test_halves_that_do_not_belong_together_are_refused(tmp_path: Path, authority: Authority) -> None:
    authority.save(tmp_path)
    (tmp_path / "ca.pem").write_bytes(Authority.create("another").pem)
    with pytest.raises(ValueError, match="do not belong together"):
        Authority.load(tmp_path)


def test_for_no_name_nothing_is_issued(authority: Authority) -> None:
    with pytest.raises(ValueError, match="without a name"):
        authority.issue_server([])


def test_private_keys_show_in_no_repr_and_no_log(tmp_path: Path) -> None:
    authority = Authority.create("mesh")
    issued = authority.issue_server([NAME])
    assert isinstance(issued, Issued)
    assert issued.key.decode() not in repr(issued)
    assert "PRIVATE" not in repr(issued) + repr(authority)
    authority.save(tmp_path)
    assert (tmp_path / "ca.key").read_text().splitlines()[1] not in mask_text((tmp_path / "ca.key").read_text())


def test_the_pin_is_the_sha256_of_the_public_key_and_stays_when_the_certificate_is_renewed(authority: Authority) -> None:
    assert len(authority.pin) == 64
    assert authority.pin == pin_of(authority.der)
    assert int(authority.pin, 16)
    assert authority.pin != Authority.create("mesh test").pin
