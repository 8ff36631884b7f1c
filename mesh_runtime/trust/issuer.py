"""The mesh's own certificate authority, and the server certificates that it issues.

What it issues passes the strictest verification that any supported Python does (`VERIFY_X509_STRICT`, default from 3.13 on): names
in the SAN, key identifiers on both, critical basic constraints and key usage. Certificates are dated back, since the clock of
a machine that joins may be behind. Keys are ECDSA on P-256.

It refuses to make an authority again where one stands (see `load`), and to issue for no name.
"""

import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mesh_runtime.logging import register_secret
from mesh_runtime.trust.files import PRIVATE, PUBLIC, write_whole
from mesh_runtime.trust.pin import pin_of

CERTIFICATE_FILE = "ca.pem"
KEY_FILE = "ca.key"

BACKDATED = timedelta(minutes=15)
"""How long before its issue a certificate is already valid."""

AUTHORITY_LIFETIME = timedelta(days=3653)
LEAF_LIFETIME = timedelta(days=90)

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the time of this machine's clock, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Issued:
    """A server's certificate and its private key, both PEM. The key never shows in a repr."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Issued(certificate=…, key=***)"

    def save(self, certificate: Path, key: Path) -> None:
        """Write both files, the key for its owner alone. Raises OSError."""
        write_whole(key, self.key, PRIVATE)
        write_whole(certificate, self.certificate, PUBLIC)


class Authority:
    """A CA: its certificate and the private key that signs under it."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        if certificate.public_key() != key.public_key():
            raise ValueError("the CA's certificate and its private key do not belong together")
        self._certificate = certificate
        self._key = key
        register_secret(_private_pem(key).decode("ascii"))

    @classmethod
    def create(cls, name: str, *, now: Clock = utc_now, lifetime: timedelta = AUTHORITY_LIFETIME) -> Self:
        """Make a new authority, which can issue for servers but not make further authorities."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        at = now()
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(at - BACKDATED)
            .not_valid_after(at + lifetime)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read an authority from the two files that `save` wrote.

        Raises OSError if one is missing, ValueError if one is damaged or the two do not belong together.
        """
        certificate = x509.load_pem_x509_certificate((directory / CERTIFICATE_FILE).read_bytes())
        key = load_pem_private_key((directory / KEY_FILE).read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{directory / KEY_FILE} holds no elliptic-curve key")
        return cls(certificate, key)

    def save(self, directory: Path) -> None:
        """Write `ca.pem` and `ca.key` (mode 0600) into the directory. Raises FileExistsError if a key stands there already, or OSError."""
        if (directory / KEY_FILE).exists():
            raise FileExistsError(f"{directory / KEY_FILE} exists: an authority is never written over")
        write_whole(directory / CERTIFICATE_FILE, self.pem, PUBLIC)
        write_whole(directory / KEY_FILE, _private_pem(self._key), PRIVATE)  # last: what was cut before it can be saved again

    def __repr__(self) -> str:
        return f"Authority(pin={self.pin!r})"

    @property
    def pem(self) -> bytes:
        """The CA's certificate, PEM."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def der(self) -> bytes:
        """The CA's certificate, DER."""
        return self._certificate.public_bytes(Encoding.DER)

    @property
    def pin(self) -> str:
        """What `MESH_CA_PIN` holds for this CA: the SHA-256 of its SubjectPublicKeyInfo, 64 hex digits."""
        return pin_of(self.der)

    def issue_server(
        self, names: Sequence[str], *, now: Clock = utc_now, starts: timedelta = -BACKDATED, lifetime: timedelta = LEAF_LIFETIME
    ) -> Issued:
        """Issue a server's certificate for DNS names and IP addresses, with a new key.

        It is valid from now plus `starts` (by default some minutes back) until now plus `lifetime`. Raises ValueError if there
        is no name, or if the certificate would end before it begins.
        """
        if not names:
            raise ValueError("a certificate without a name can serve nobody: give at least one DNS name or IP address")
        key = ec.generate_private_key(ec.SECP256R1())
        at = now()
        builder = (
            x509.CertificateBuilder()
            # Verifiers read the SAN alone; the subject is for people, and its field holds 64 characters.
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])]))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(at + starts)
            .not_valid_after(at + lifetime)
            .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        builder = builder.add_extension(self._authority_key_identifier(), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Issued(certificate.public_bytes(Encoding.PEM), _private_pem(key))

    def _authority_key_identifier(self) -> x509.AuthorityKeyIdentifier:
        own = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
