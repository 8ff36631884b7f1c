"""Private keys on disk: one kind a file, PEM (PKCS 8) without a passphrase, for its owner alone, never written over.

A key's text is masked in every log from the moment that the key is in memory, and what goes wrong is said without what stands in the file.
"""

from pathlib import Path
from typing import TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from mesh_runtime.logging import register_secret
from mesh_runtime.trust.files import PRIVATE, write_whole

K = TypeVar("K", Ed25519PrivateKey, X25519PrivateKey)


class BadKey(ValueError):
    """A text or a file is no key of the kind that is needed."""


def masked(key: K) -> K:
    """The key itself; its text is masked in logs from now on."""
    register_secret(_pem(key).decode("ascii"))
    return key


def load_key(path: Path, kind: type[K]) -> K:
    """The key that ``save_key`` wrote. Raises OSError if it cannot be read, BadKey if it is no key of this kind."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Not chained: such an error may quote what stands in the file.
        raise BadKey(f"{path} holds no private key in PEM without a passphrase") from None
    if not isinstance(key, kind):
        raise BadKey(f"{path} holds a key of another kind than {kind.__name__.removesuffix('PrivateKey')}")
    return key


def save_key(path: Path, key: Ed25519PrivateKey | X25519PrivateKey) -> None:
    """Write it, mode 0600. Raises FileExistsError if something stands there already."""
    if path.exists():
        raise FileExistsError(f"{path} exists: a private key is never written over")
    write_whole(path, _pem(key), PRIVATE)


def _pem(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
