"""Finds the mesh's CA in what a server sends, by the pin of its public key.

The chain is read from a connection that trusts nothing and sends nothing; it yields only *which* certificate is the CA. The
connection that is used afterwards is verified in full under it. The pinned certificate must be signed by its own key: else anyone
could put the mesh's public key into a certificate with dates and constraints of their own making.

cryptography's x509 is loaded when a certificate is first looked at: a runtime that is given its CA as a file never does.
"""

import hashlib
import hmac
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509


class PinMismatch(OSError):
    """The server's chain holds no CA under the pinned key. Somebody must act: another broker, or another pin."""


def pin_of(certificate: "bytes | x509.Certificate") -> str:
    """Return the pin of a certificate (DER if bytes): the SHA-256 of its SubjectPublicKeyInfo (RFC 7469), 64 hex digits."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    loaded = x509.load_der_x509_certificate(certificate) if isinstance(certificate, bytes) else certificate
    key = loaded.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(key).hexdigest()


def ca_for_pin(chain: Sequence[bytes], pin: str) -> bytes:
    """Return the DER of the CA in the chain (DER, leaf first) whose key has this pin; raises PinMismatch, which says what was sent."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    from mesh_runtime.trust.certificates import UNREADABLE

    unusable = ""
    for der in chain:
        try:
            certificate = x509.load_der_x509_certificate(der)
            if not hmac.compare_digest(pin_of(certificate), pin.lower()):
                continue
            certificate.verify_directly_issued_by(certificate)
            if certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
                return der
            unusable = "the certificate under the pinned key is no CA"
        except InvalidSignature:
            unusable = "the certificate under the pinned key is not signed by that key"
        except UNREADABLE as error:
            unusable = f"a certificate of the chain cannot be used: {str(error) or type(error).__name__}"
    raise PinMismatch(_in_words(chain, pin, unusable))


def chain_of(link: ssl.SSLObject | ssl.SSLSocket) -> list[bytes]:
    """Return the certificates that the other side sent on this link, DER, leaf first, verified or not."""
    if hasattr(link, "get_unverified_chain"):  # public from Python 3.13 on
        return list(link.get_unverified_chain())
    import _ssl

    inner = link._sslobj  # type: ignore[union-attr]
    return [each.public_bytes(_ssl.ENCODING_DER) for each in inner.get_unverified_chain() or ()]


def _in_words(chain: Sequence[bytes], pin: str, unusable: str) -> str:
    if unusable:
        return f"no CA for the pin {pin}: {unusable}"
    if len(chain) == 1:
        return (
            f"no CA for the pin {pin}: the server sent its own certificate alone, so its CA cannot be found; "
            "let it send the CA's certificate too"
        )
    seen = ", ".join(_named(der) for der in chain) or "nothing"
    return f"no CA for the pin {pin}: the server sent {seen}"


def _named(der: bytes) -> str:
    from cryptography import x509

    from mesh_runtime.trust.certificates import UNREADABLE

    try:
        certificate = x509.load_der_x509_certificate(der)
        return f"{certificate.subject.rfc4514_string() or 'a certificate without subject'} (pin {pin_of(certificate)})"
    except UNREADABLE:
        return "a certificate that cannot be read"
