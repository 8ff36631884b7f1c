"""What a certificate says of itself, for the words of a fault. Nothing of it is believed.

A file of its own, so that cryptography's x509 is loaded only where a certificate has to be spoken of. A chain is DER, leaf first.
"""

from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from mesh_runtime.trust.times import spelled

#: What cryptography raises for a certificate that is damaged, or of a kind that it does not know; much of it only when a part is looked at.
UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


def _leaf(chain: Sequence[bytes]) -> x509.Certificate | None:
    try:
        return x509.load_der_x509_certificate(chain[0]) if chain else None
    except UNREADABLE:
        return None


def window(chain: Sequence[bytes]) -> str:
    """Name the window of the certificate that is out of its time, leaf or CA; the chain is searched for the narrowest."""
    loaded = [each for each in (_leaf([der]) for der in chain) if each is not None]
    if not loaded:
        return "its times could not be read"
    try:
        begins = max(each.not_valid_before_utc for each in loaded)
        ends = min(each.not_valid_after_utc for each in loaded)
    except UNREADABLE:
        return "its times could not be read"
    return f"it is valid from {spelled(begins)} to {spelled(ends)}"


def has_no_names(chain: Sequence[bytes]) -> bool:
    """Whether the leaf carries no subject alternative name at all."""
    leaf = _leaf(chain)
    try:
        return leaf is not None and leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName) is None
    except x509.ExtensionNotFound:
        return True
    except UNREADABLE:
        return False


def names(chain: Sequence[bytes]) -> str:
    """The names that the leaf is for."""
    leaf = _leaf(chain)
    if leaf is None:
        return ""
    try:
        said = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except UNREADABLE:
        return "; its names cannot be read"
    found = [str(each) for kind in (x509.DNSName, x509.IPAddress) for each in said.get_values_for_type(kind)]
    return f"; it is for {', '.join(found) or 'no name'}"


def issuer(chain: Sequence[bytes]) -> str:
    """What the leaf calls its issuer."""
    leaf = _leaf(chain)
    try:
        return "" if leaf is None else f"; its issuer calls itself {leaf.issuer.rfc4514_string() or 'nothing'}"
    except UNREADABLE:
        return "; what its issuer calls itself cannot be read"
