"""Mints certificate authorities and server certificates, sound ones and faulty ones.

A runtime must tell a wrong name from a wrong CA from a wrong date, so a test needs one of each. What the product itself
issues comes from `mesh_runtime.trust.issuer`; here every property can be left out or bent. By default all is sound: SAN,
AKI, SKI, basic constraints, key usage, ECDSA P-256, valid from an hour ago for a day.
"""

import hashlib
import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Wish:
    """What a certificate should carry. Times count from the moment of issue; a fault is a property left out."""

    names: tuple[str, ...] = ()
    """Subject alternative names; what reads as an IP address becomes one. Empty: no such extension (*CN-only*)."""
    common_name: str | None = None
    """The subject's common name; by default the first of `names`."""
    starts: timedelta = timedelta(hours=-1)
    ends: timedelta = timedelta(days=1)
    authority_key_identifier: bool = True
    subject_key_identifier: bool = True
    key_usage: bool = True


@dataclass(frozen=True)
class Leaf:
    """A server certificate and its key, PEM encoded."""

    certificate: bytes
    key: bytes = field(repr=False)

    @property
    def serial(self) -> int:
        """The serial number, as seen in the handshake of whoever serves this certificate."""
        return x509.load_pem_x509_certificate(self.certificate).serial_number


class CertificateAuthority:
    """A CA with a key of its own. Two of the same name are still two: the second is the *wrong CA* of a test."""

    def __init__(self, name: str = "a mesh's CA", wish: Wish | None = None) -> None:
        """Make key and certificate. Of `wish`, the dates, SKI and key usage count."""
        wish = wish or Wish()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key.public_key(), wish)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        if wish.key_usage:
            builder = builder.add_extension(_usage(sign_certificates=True), critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def certificate(self) -> bytes:
        """The CA's certificate, PEM encoded."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def pin(self) -> str:
        """SHA-256 of the CA's SubjectPublicKeyInfo (RFC 7469, 2.4), as 64 hex digits."""
        spki = self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(spki).hexdigest()

    def issue(self, *names: str) -> Leaf:
        """Issue a sound server certificate for `names`."""
        return self.issue_as_wished(Wish(names))

    def issue_as_wished(self, wish: Wish) -> Leaf:
        """Issue a server certificate with just what `wish` says."""
        key = ec.generate_private_key(ec.SECP256R1())
        common_name = wish.common_name or (wish.names[0] if wish.names else "nobody")
        builder = _builder(_name(common_name), self._name, key.public_key(), wish)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        if wish.names:
            names = x509.SubjectAlternativeName([_general_name(name) for name in wish.names])
            builder = builder.add_extension(names, critical=False)
        if wish.authority_key_identifier:
            issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = builder.add_extension(issuer, critical=False)
        if wish.key_usage:
            builder = builder.add_extension(_usage(sign_certificates=False), critical=True)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Leaf(
            certificate.public_bytes(Encoding.PEM),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        )

    def write(self, path: Path) -> Path:
        """Write the CA's certificate to `path`, as `MESH_CA_FILE` wants it; return `path`."""
        path.write_bytes(self.certificate)
        return path


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, wish: Wish) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + wish.starts)
        .not_valid_after(now + wish.ends)
    )
    if wish.subject_key_identifier:
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    return builder


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
