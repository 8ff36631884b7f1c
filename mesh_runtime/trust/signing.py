"""Ed25519 signatures over bytes as they are sent (RFC 8032): the controller signs declarations, each host verifies them.

What is signed is the very bytes that travel; nothing is parsed before its signature was found good.
"""

import base64
import binascii
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mesh_runtime.trust.keys import BadKey, load_key, masked, save_key


class BadSignature(Exception):
    """The bytes are not signed by the key that they should be signed by."""


class VerifyKey:
    """The public half: knows whether bytes were signed by its signing key. Equal if the key is the same."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str()` of a key gave: 64 hex digits. Raises BadKey."""
        try:
            return cls(Ed25519PublicKey.from_public_bytes(bytes.fromhex(text.strip())))
        except ValueError as error:
            raise BadKey("a public Ed25519 key is 64 hex digits") from error

    def __str__(self) -> str:
        return self._key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()

    def __repr__(self) -> str:
        return f"VerifyKey({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VerifyKey) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def verify(self, data: bytes, signature: str) -> None:
        """Return if `signature` is this key's over exactly these bytes; raises BadSignature otherwise."""
        try:
            self._key.verify(base64.b64decode(signature, validate=True), data)
        except (binascii.Error, ValueError) as error:
            raise BadSignature("the signature is not base64") from error
        except InvalidSignature as error:
            raise BadSignature(f"the bytes are not signed by the key {self}") from error


class SigningKey:
    """The private half. It never shows in a repr, and its text is masked in every log."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = masked(key)

    @classmethod
    def generate(cls) -> Self:
        """Draw a new key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a key from the PEM file that `save` wrote. Raises OSError if it cannot be read, BadKey if it is no such key."""
        return cls(load_key(path, Ed25519PrivateKey))  # type: ignore[type-abstract]  # it is only compared with

    def save(self, path: Path) -> None:
        """Write the key as PEM, mode 0600. Raises FileExistsError if something stands there already: a key is never written over."""
        save_key(path, self._key)

    @property
    def verify_key(self) -> VerifyKey:
        """The public half of this key."""
        return VerifyKey(self._key.public_key())

    def sign(self, data: bytes) -> str:
        """Return the signature over these bytes, base64."""
        return base64.b64encode(self._key.sign(data)).decode("ascii")

    def __repr__(self) -> str:
        return f"SigningKey(verify_key={self.verify_key})"
