"""Certificates that our issuer would never make, to see them refused."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from mesh_runtime.trust import Issued


@dataclass(frozen=True)
class Careless:
    """A home-made CA, as a plain use of the builders gives it: no key identifiers, no key usage."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def leaf(self, names: list[str], *, authority_key_identifier: bool = False, common_name: str = "leaf") -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(common_name, self.certificate.subject, key).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        if authority_key_identifier:
            identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
            builder = builder.add_extension(identifier, critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Issued(certificate.public_bytes(Encoding.PEM), private)


def careless_ca(*, strict: bool = False, ca: bool = True, key: ec.EllipticCurvePrivateKey | None = None) -> Careless:
    """A CA; `strict` gives it what strict verification asks of a CA, so that only the leaf's flaws are seen."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "careless")])
    builder = _builder("careless", subject, key).add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    if strict:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(usage, critical=True).add_extension(identifier, critical=False)
    return Careless(key, builder.sign(key, hashes.SHA256()))


def wrapped(public: ec.EllipticCurvePublicKey) -> bytes:
    """A CA certificate that bears somebody's public key, signed by another key: what a forger can make of a pin."""
    forger = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "careless")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    return builder.sign(forger, hashes.SHA256()).public_bytes(Encoding.DER)


def _builder(name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )
