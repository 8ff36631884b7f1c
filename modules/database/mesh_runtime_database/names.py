"""What may be the name of a database, an owner or a login: checked before any statement is made of it.

Every accepted name is lower-case ASCII of at most 63 bytes, PostgreSQL's own limit (`NAMEDATALEN` - 1), and is always quoted by the driver.
So the server folds and truncates nothing, and two different names are two different identifiers.
"""

import re

from mesh_runtime.contracts.identity import WORD
from mesh_runtime.startup import Stage, StageFault, blocked

_LOGIN = re.compile(r"[a-z0-9]([a-z0-9_.@-]{0,61}[a-z0-9])?\Z")
#: Names that no role can have. Source: PostgreSQL documentation, *CREATE ROLE*, and `check_rolespec_name` in its source.
RESERVED = frozenset({"public", "none"})


_DATABASE = "1 to 63 of a-z, 0-9 and '-', with no '-' at either end, not beginning with 'pg-', and neither 'public' nor 'none'"
_LOGINS = (
    "1 to 63 of a-z, 0-9 and '_.@-', a letter or digit at either end, not beginning with 'pg_' or 'pg-', and neither 'public' nor 'none'"
)


def check_database(name: str) -> str:
    """``name`` itself, or StageFault (blocked): it is sent to no server. Its owner role has the same name."""
    if not WORD.match(name) or name.startswith("pg-") or name in RESERVED:
        raise _bad("a database's name", name, _DATABASE)
    return name


def check_login(name: str) -> str:
    """``name`` itself, or StageFault (blocked): it is sent to no server."""
    if not _LOGIN.match(name) or name.startswith(("pg_", "pg-")) or name in RESERVED:
        raise _bad("a login's name", name, _LOGINS)
    return name


def _bad(what: str, name: str, wanted: str) -> StageFault:
    return blocked(Stage.GRANTS, "bad-name", f"{what} is {name!r}: it must be {wanted}")
