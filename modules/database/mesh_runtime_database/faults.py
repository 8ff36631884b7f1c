"""What the server or the driver says, sorted: waiting, or blocked where somebody must act. The only place that knows SQLSTATEs.

A cause carries the server's own words. It never carries a statement, and no value of one.

Before a session stands the driver hands on the server's words alone, without their SQLSTATE. They are recognised in English; in another
language such a refusal is shown in its own words too, and waited for.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from mesh_runtime.startup import Cause, Kind, Stage, StageFault

#: Exact SQLSTATEs first, then classes. Source: PostgreSQL documentation, appendix A. What is not here is waited for.
_STATES = {
    "42501": (Kind.BLOCKED, "no-permission"),
    "25006": (Kind.BLOCKED, "read-only"),
    "3D000": (Kind.BLOCKED, "no-database"),
    "28": (Kind.BLOCKED, "login-refused"),
    "53100": (Kind.WAITING, "disk-full"),
    "53200": (Kind.WAITING, "out-of-memory"),
    "53300": (Kind.WAITING, "too-many-connections"),
    "53": (Kind.WAITING, "full"),
    "40": (Kind.WAITING, "conflict"),
    "55P03": (Kind.WAITING, "locked"),
    "57014": (Kind.WAITING, "time-out"),
    "57P03": (Kind.WAITING, "starting"),
    "57P": (Kind.WAITING, "shutting-down"),
    "08": (Kind.WAITING, "unreachable"),
}
_LOGIN = r"authentication failed|no password supplied|not permitted to log in|role \".*\" does not exist|pg_hba\.conf|authentication method"
_TLS = r"does not support SSL|SSL error|certificate|sslmode|sslrootcert"
_WORDS = (
    (re.compile(_LOGIN), Kind.BLOCKED, "login-refused"),
    (re.compile(r"database \".*\" does not exist"), Kind.BLOCKED, "no-database"),
    (re.compile(r"permission denied"), Kind.BLOCKED, "no-permission"),
    (re.compile(_TLS), Kind.BLOCKED, "tls-refused"),
    (re.compile(r"the database system is"), Kind.WAITING, "starting"),
    (re.compile(r"too many (clients|connections)|remaining connection slots"), Kind.WAITING, "too-many-connections"),
    (re.compile(r"Connection refused"), Kind.WAITING, "refused"),
    (re.compile(r"timeout expired"), Kind.WAITING, "time-out"),
)


@contextmanager
def translated(stage: Stage, address: str) -> Iterator[None]:
    """Raise what the driver raises inside as StageFault of ``stage``, naming the server's ``address``."""
    try:
        yield
    except psycopg.Error as error:
        raise StageFault(stage, cause_of(error, address)) from error


def cause_of(error: psycopg.Error, address: str) -> Cause:
    """The cause that ``error`` is."""
    kind, code = _sorted(error)
    state = f" ({error.sqlstate})" if error.sqlstate else ""
    return Cause(kind, code, f"PostgreSQL at {address}: {_words(error)}{state}", address)


def _sorted(error: psycopg.Error) -> tuple[Kind, str]:
    if error.sqlstate:
        for length in (5, 3, 2):
            if known := _STATES.get(error.sqlstate[:length]):
                return known
        return Kind.WAITING, f"sqlstate-{error.sqlstate}"
    for pattern, kind, code in _WORDS:
        if pattern.search(str(error)):
            return kind, code
    return Kind.WAITING, "unreachable" if isinstance(error, psycopg.OperationalError) else type(error).__name__


def _words(error: psycopg.Error) -> str:
    """Its words in one line. A server's error quotes the statement beside its message, which is left out."""
    diag = error.diag
    parts = [diag.message_primary, diag.message_detail, diag.message_hint] if error.sqlstate else [str(error)]
    return " ".join("; ".join(part for part in parts if part).split()) or type(error).__name__
