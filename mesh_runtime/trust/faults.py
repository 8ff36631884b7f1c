"""Puts a handshake's failure into words: what is wrong, with which name and at which times, and whether time can mend it.

*Blocked* are a wrong pin, a wrong CA and a wrong name: somebody must act. All else waits: a renewal or the clock mends a validity
fault, the other side may come to speak TLS, and what is unknown is never taken for final. No text is ever empty: the
handshake's own errors are, when the other side merely hangs up.
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from mesh_runtime.trust.pin import PinMismatch
from mesh_runtime.trust.times import spelled

# X509_V_ERR_* of OpenSSL.
_NOT_YET_VALID = 9
_EXPIRED = 10
_WRONG_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH

# Signature failure; self-signed leaf; self-signed in chain; no issuer locally; leaf cannot be verified.
_WRONG_CA = (7, 18, 19, 20, 21)

_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")


@dataclass(frozen=True, slots=True)
class TrustFault:
    """Why the other side is not believed: a stable code, words for people, and whether somebody must act (`blocked`)."""

    code: str
    text: str
    blocked: bool


def fault_of(error: OSError, *, name: str, address: str, now: datetime | None = None, chain: Sequence[bytes] = ()) -> TrustFault:
    """Return what the failure of a handshake means.

    `name` is the one that was to be verified, `address` what was dialled. `chain` is what the server presents, if it was fetched
    (DER, leaf first; not trusted, used for words only): with it a validity fault names the certificate's own times. A library's
    error that wraps the real one is looked through.
    """
    match _innermost(error):
        case PinMismatch() as pinned:
            return TrustFault("wrong-pin", f"{address}: {pinned}", blocked=True)
        case ssl.SSLCertVerificationError() as refused:
            return _of_certificate(refused, name, address, now or datetime.now(UTC), chain)
        case ssl.SSLError() as broken:
            return _of_handshake(broken, address)
        case TimeoutError() | ConnectionAbortedError():
            # asyncio's own limit on a handshake is a ConnectionAbortedError.
            return TrustFault("silent", f"{address} accepts connections but does not answer the TLS handshake", blocked=False)
        case ConnectionResetError() | BrokenPipeError() | EOFError():
            return TrustFault("reset", f"{address} closed the connection during the TLS handshake", blocked=False)
        case other:
            return TrustFault("unknown", f"{address}: {_said(other)}", blocked=False)


def _of_certificate(error: ssl.SSLCertVerificationError, name: str, address: str, now: datetime, chain: Sequence[bytes]) -> TrustFault:
    from mesh_runtime.trust import certificates as told  # with all of x509: only once there is a certificate to speak of

    local = f"the local time is {spelled(now)}"
    code = error.verify_code
    if code == _NOT_YET_VALID:
        return TrustFault("not-yet-valid", f"{address}: the certificate is not valid yet: {told.window(chain)}; {local}", blocked=False)
    if code == _EXPIRED:
        return TrustFault("expired", f"{address}: the certificate has expired: {told.window(chain)}; {local}", blocked=False)
    if code in _WRONG_NAME:
        if told.has_no_names(chain):
            text = f"{address}: the certificate has no subject alternative names, and its common name does not count"
            return TrustFault("no-names", f"{text}; the expected name is {name!r}", blocked=True)
        text = f"{address}: the certificate is not for the expected name {name!r}{told.names(chain)}"
        return TrustFault("wrong-name", text, blocked=True)
    if code in _WRONG_CA:
        text = f"{address}: the certificate is not issued by the expected CA ({_verdict(error)}){told.issuer(chain)}"
        return TrustFault("wrong-ca", text, blocked=True)
    return TrustFault("bad-certificate", f"{address}: the certificate is refused: {_verdict(error)}", blocked=False)


def _of_handshake(error: ssl.SSLError, address: str) -> TrustFault:
    reason = _reason(error)
    if reason in _NOT_TLS:
        return TrustFault("not-tls", f"{address} does not speak TLS (its answer is no TLS record): is it a plaintext port?", blocked=False)
    if "ALERT" in reason:
        return TrustFault("alert", f"{address} refused the TLS handshake by an alert: {reason}", blocked=False)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError) or "EOF" in reason:
        return TrustFault("reset", f"{address} closed the connection during the TLS handshake", blocked=False)
    return TrustFault("tls", f"{address}: the TLS handshake failed: {reason or _said(error)}", blocked=False)


def _innermost(error: OSError) -> BaseException:
    """Look through wrappers: the broker client turns every OSError into its own, with the real one as the cause."""
    inner: BaseException = error
    while isinstance(inner.__cause__, OSError | EOFError) and not isinstance(inner, ssl.SSLError | PinMismatch):
        inner = inner.__cause__
    return inner


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _reason(error: ssl.SSLError) -> str:
    # Only an error that OpenSSL itself reported has one.
    return getattr(error, "reason", None) or ""


def _verdict(error: ssl.SSLCertVerificationError) -> str:
    return error.verify_message or _reason(error) or f"verify code {error.verify_code}"
