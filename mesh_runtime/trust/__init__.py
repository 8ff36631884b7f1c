"""Who is believed, and why not: the mesh's certificates, the pin on its CA, the controller's signatures.

Verification is a fact about a handshake that just happened. A context is built for one attempt from what stands in the files (or in
the broker's chain, under the pin) at that moment; the name to verify is its own setting; nothing here can lower a check. A
fault is told in words that name certificates, names and times, and is *blocked* only where somebody must act.

What issues and what signs is loaded when it is first used: most runtimes do neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mesh_runtime.trust.context import client_context, read_ca, reading_context
from mesh_runtime.trust.faults import TrustFault, fault_of
from mesh_runtime.trust.pin import PinMismatch, ca_for_pin, chain_of, pin_of

if TYPE_CHECKING:
    from mesh_runtime.trust.issuer import Authority, Issued
    from mesh_runtime.trust.keys import BadKey
    from mesh_runtime.trust.signing import BadSignature, SigningKey, VerifyKey

_LATE = {"Authority": "issuer", "Issued": "issuer", "BadKey": "keys"} | dict.fromkeys(
    ("BadSignature", "SigningKey", "VerifyKey"), "signing"
)

__all__ = [
    "Authority",
    "BadKey",
    "BadSignature",
    "Issued",
    "PinMismatch",
    "SigningKey",
    "TrustFault",
    "VerifyKey",
    "ca_for_pin",
    "chain_of",
    "client_context",
    "fault_of",
    "pin_of",
    "read_ca",
    "reading_context",
]


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
