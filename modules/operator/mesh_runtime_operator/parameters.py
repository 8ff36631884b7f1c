"""What an operator writes after ``mesh place MODULE MACHINE``: ``key=value``, or ``key=@FILE`` for what stands in a file.

A value that begins with ``@`` itself is written ``@@``. The store's ``ca`` is always a file's name, since nobody types a certificate.
"""

import re
from collections.abc import Iterable
from pathlib import Path

_KEY = re.compile(r"[a-z][a-z0-9_-]*\Z")

_PUBLIC_KEY = re.compile(r"[0-9A-Fa-f]{64}\Z")

#: Parameters that are read from a file also where they are written without ``@``, and that hold no secret.
_CERTIFICATES = frozenset({("store", "ca")})

#: Bytes of a parameter's file: far above any certificate chain, far below what a message may hold.
LIMIT = 256 * 1024


class BadParameter(ValueError):
    """A parameter is written wrongly, or its file cannot be read; says which and what would be right."""


def read_parameters(module: str, written: Iterable[str]) -> dict[str, str]:
    """The parameters of a placement. Raises BadParameter."""
    found: dict[str, str] = {}
    for one in written:
        key, equals, value = one.partition("=")
        if not equals or not _KEY.match(key):
            raise BadParameter(f"{one!r} is no parameter: it must read key=value or key=@FILE, the key in lower case")
        if key in found:
            raise BadParameter(f"{key} is given twice")
        found[key] = _value(module, key, value)
    return found


def read_key(file: Path) -> str:
    """The public key in a file, as 64 hex digits in lower case. Raises BadParameter; nothing of the file's content is in its words."""
    text = _read("--key", file).strip()
    if "PRIVATE KEY" in text:
        raise BadParameter(f"--key: {file} holds a private key; give the file with its public half. Nothing was sent")
    if not _PUBLIC_KEY.match(text):
        raise BadParameter(f"--key: {file} holds no public key: it must hold 64 hex digits")
    return text.lower()


def _value(module: str, key: str, value: str) -> str:
    certificate = (module, key) in _CERTIFICATES
    if value.startswith("@@"):
        return value[1:]
    if value.startswith("@") or certificate:
        path = Path(value.removeprefix("@"))
        text = _read(key, path)
        if certificate and "PRIVATE KEY" in text:
            raise BadParameter(f"{key}: {path} holds a private key; give a file with the certificate alone. Nothing was sent")
        return text
    return value


def _read(key: str, path: Path) -> str:
    try:
        data = path.read_bytes()
        if len(data) > LIMIT:
            raise BadParameter(f"{key}: {path} has {len(data)} bytes, {LIMIT} are allowed")
        return data.decode()
    except OSError as error:
        raise BadParameter(f"{key}: {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadParameter(f"{key}: {path} is not UTF-8 text") from None
