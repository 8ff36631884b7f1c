"""Sealing: what only one identity can open (HPKE, RFC 9180, base mode: X25519, HKDF-SHA256, ChaCha20-Poly1305).

What a sealed text is for stands in its ``info`` and is bound to it: whoever presents it as another consumer's, for another resource, of
another issuer or sequence number opens nothing. Base mode does not say who sealed: that is the login that the broker validated.
"""

import base64
import binascii
import json
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mesh_runtime.trust.keys import BadKey, load_key, masked, save_key

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


class CannotOpen(Exception):
    """A sealed text is not for this key, or not for this purpose, or was changed on its way."""


def purpose_of(*parts: str | int) -> bytes:
    """What a sealed text is for, as bytes to bind to it: no two different lists of parts give the same."""
    return json.dumps(["mesh-grant.1", *parts], ensure_ascii=True, separators=(",", ":")).encode()


class PublicKey:
    """The half to which others seal. ``str()`` gives 64 hex digits; equal if the key is the same."""

    def __init__(self, key: X25519PublicKey) -> None:
        self._key = key

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str()`` of a key gave. Raises BadKey."""
        try:
            return cls(X25519PublicKey.from_public_bytes(bytes.fromhex(text.strip())))
        except ValueError as error:
            raise BadKey("a public X25519 key is 64 hex digits") from error

    def __str__(self) -> str:
        return self._key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()

    def __repr__(self) -> str:
        return f"PublicKey({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def seal(self, secret: bytes, purpose: bytes) -> str:
        """Seal ``secret`` to this key for ``purpose``; base64. Raises BadKey for a key on which no two could agree (RFC 7748, 6.1)."""
        try:
            return base64.b64encode(_SUITE.encrypt(secret, self._key, purpose)).decode("ascii")
        except ValueError as error:
            raise BadKey(f"nothing can be sealed to the key {self}") from error


class PrivateKey:
    """The half that opens. It never shows in a repr, and its text is masked in every log."""

    def __init__(self, key: X25519PrivateKey) -> None:
        self._key = masked(key)

    @classmethod
    def generate(cls) -> Self:
        """Draw a new key."""
        return cls(X25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a key from the PEM file that ``save`` wrote. Raises OSError if it cannot be read, BadKey if it is no such key."""
        return cls(load_key(path, X25519PrivateKey))  # type: ignore[type-abstract]  # it is only compared with

    def save(self, path: Path) -> None:
        """Write the key as PEM, mode 0600. Raises FileExistsError if something stands there already: a key is never written over."""
        save_key(path, self._key)

    @property
    def public_key(self) -> PublicKey:
        """The public half of this key."""
        return PublicKey(self._key.public_key())

    def open(self, sealed: str, purpose: bytes) -> bytes:
        """What ``seal`` sealed to this key for exactly this purpose. Raises CannotOpen."""
        try:
            return _SUITE.decrypt(base64.b64decode(sealed, validate=True), self._key, purpose)
        except (InvalidTag, ValueError, binascii.Error):
            raise CannotOpen(f"it cannot be opened with the key {self.public_key}: not sealed to it, or not for this") from None

    def __repr__(self) -> str:
        return f"PrivateKey(public_key={self.public_key})"
