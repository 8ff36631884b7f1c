"""From the placement's key file and a sealed answer to an access: the only place of a consumer where a secret comes to light.

It is registered to be masked before anything else can see it. Whatever is in the way is said with the keys that are meant, never with
what was sealed.
"""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mesh_runtime.asking.words import complaint_of
from mesh_runtime.contracts.granting import Access, Granted, GrantRotated, Resource
from mesh_runtime.grants.entering import Grant
from mesh_runtime.logging import register_secret
from mesh_runtime.settings.secret import secrets_in
from mesh_runtime.startup import Stage, blocked, waiting
from mesh_runtime.trust.keys import BadKey
from mesh_runtime.trust.sealing import CannotOpen, PrivateKey, purpose_of


def read_key(path: Path | None) -> PrivateKey:
    """The placement's key, read afresh. Raises StageFault (grants)."""
    if path is None:
        raise blocked(Stage.GRANTS, "no-key-file", "MESH_KEY_FILE is not set: grants are sealed to the placement's key", "MESH_KEY_FILE")
    try:
        return PrivateKey.load(path)
    except FileNotFoundError:
        raise waiting(Stage.GRANTS, "no-key", f"{path} (MESH_KEY_FILE) is not there yet", str(path)) from None
    except OSError as unreadable:
        words = f"{path} (MESH_KEY_FILE) cannot be read: {unreadable.strerror or type(unreadable).__name__}"
        raise waiting(Stage.GRANTS, "no-key", words, str(path)) from None
    except BadKey as bad:
        raise blocked(Stage.GRANTS, "bad-key", f"{bad} (MESH_KEY_FILE)", str(path)) from None


def opened(answer: Granted | GrantRotated, resource: Resource[Any], consumer: str, issuer: str, key: PrivateKey) -> Grant:
    """What ``issuer``, whom the broker validated, sealed for this consumer; its secrets are masked from now on.

    Raises StageFault (grants).
    """
    ours, what = str(key.public_key), f"{resource.text}, number {answer.sequence} of {issuer},"
    if answer.key != ours:
        words = f"{what} is sealed to the key {answer.key}, and {consumer} has {ours}"
        raise waiting(Stage.GRANTS, "cannot-open", words, issuer)
    try:
        text = key.open(answer.sealed, purpose_of("access", consumer, resource.text, issuer, answer.sequence))
    except CannotOpen as cannot:
        raise waiting(Stage.GRANTS, "cannot-open", f"{what} was not sealed for this: {cannot}", issuer) from None
    return Grant(resource.text, answer.sequence, issuer, ours, _read(type(resource).access_type(), text, what, issuer))


def _read(kind: type[Access], text: bytes, what: str, issuer: str) -> Access:
    try:
        access = kind.model_validate_json(text)
    except ValidationError as malformed:
        words = f"{what} holds what is no {kind.__name__}: {complaint_of(malformed)}"
        raise waiting(Stage.GRANTS, "malformed-access", words, issuer) from None
    for secret in secrets_in(kind, access):
        register_secret(secret)
    return access
