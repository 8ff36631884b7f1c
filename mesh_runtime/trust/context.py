"""TLS contexts: one that verifies in full, and one that reads a chain and is used for nothing else."""

import ssl
from pathlib import Path

from mesh_runtime.settings import NotThereYet, read_file


def client_context(ca: bytes) -> ssl.SSLContext:
    """Return a context that trusts this CA alone: DER of one certificate, or PEM of one or several.

    TLS 1.2 or newer; RFC 5280 checks strict, whatever the interpreter's default; names from the SAN only, never the subject's
    common name. Nothing of the system's own trust store counts. Raises ValueError if `ca` holds no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies chain and name by default
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.hostname_checks_common_name = False
    try:
        is_pem = b"-----BEGIN" in ca
        context.load_verify_locations(cadata=ca.decode("ascii") if is_pem else ca)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise ValueError("it holds no certificate that can be read") from error
    if not context.get_ca_certs():
        raise ValueError("it holds no certificate of a CA")
    return context


def reading_context() -> ssl.SSLContext:
    """Return a context that verifies nothing, to read what a server presents and then hang up. Never speak over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def read_ca(path: Path) -> bytes:
    """Return a CA file's content if a context can be made of it.

    Raises NotThereYet if it is missing or unreadable, and also if it holds no certificate: it may be in the middle of being
    written, and somebody can put the right one in its place.
    """
    content = read_file(path)
    try:
        client_context(content)
    except ValueError as error:
        raise NotThereYet(path, f"is no CA file: {error}") from error
    return content
