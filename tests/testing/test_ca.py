"""Certificates are as wished: the sound ones pass the strictest verification, each fault fails by its own reason."""

import hashlib
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mesh_runtime.testing.ca import CertificateAuthority, Leaf, Wish
from mesh_runtime.testing.gate import serving

NAME = "broker.mesh"


def handshake(ca: CertificateAuthority, leaf: Leaf, issuer: CertificateAuthority | None = None) -> None:
    """Shake hands in memory, verifying strictly under `ca`; raises what a client would see."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.hostname_checks_common_name = False
    context.load_verify_locations(cadata=ca.certificate.decode())
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=NAME)
    server = serving(leaf, issuer or ca).wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.version() is not None


def test_a_sound_certificate_passes_strict_verification() -> None:
    ca = CertificateAuthority()
    handshake(ca, ca.issue(NAME, "127.0.0.1"))


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (Wish(("other.mesh",)), "Hostname mismatch"),
        (Wish((), common_name=NAME), "Hostname mismatch"),
        (Wish((NAME,), starts=timedelta(hours=1)), "not yet valid"),
        (Wish((NAME,), starts=timedelta(hours=-2), ends=timedelta(hours=-1)), "expired"),
        (Wish((NAME,), authority_key_identifier=False), "Missing Authority Key Identifier"),
    ],
)
def test_each_fault_of_a_leaf_is_refused_for_its_own_reason(wish: Wish, reason: str) -> None:
    ca = CertificateAuthority()
    with pytest.raises(ssl.SSLCertVerificationError, match=reason):
        handshake(ca, ca.issue_as_wished(wish))


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (Wish(subject_key_identifier=False), "Missing Subject Key Identifier"),
        (Wish(key_usage=False), "CA cert does not include key usage extension"),
    ],
)
def test_each_fault_of_a_ca_is_refused_for_its_own_reason(wish: Wish, reason: str) -> None:
    ca = CertificateAuthority(wish=wish)
    with pytest.raises(ssl.SSLCertVerificationError, match=reason):
        handshake(ca, ca.issue(NAME))


def test_a_second_ca_of_the_same_name_is_another_ca() -> None:
    ours, theirs = CertificateAuthority("one name"), CertificateAuthority("one name")
    assert ours.pin != theirs.pin
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(ours, theirs.issue(NAME), theirs)


def test_the_pin_is_the_digest_of_the_key_in_the_written_file(tmp_path: Path) -> None:
    ca = CertificateAuthority()
    written = x509.load_pem_x509_certificate(ca.write(tmp_path / "ca.pem").read_bytes())
    spki = written.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert ca.pin == hashlib.sha256(spki).hexdigest()


def test_a_key_is_in_no_repr() -> None:
    leaf = CertificateAuthority().issue(NAME)
    assert b"PRIVATE KEY" in leaf.key
    assert "PRIVATE KEY" not in repr(leaf)
