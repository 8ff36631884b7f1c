"""The resource of the module ``database``: a PostgreSQL database, and the access to it."""

from typing import Annotated
from urllib.parse import quote

from pydantic import AfterValidator, SecretStr

from mesh_runtime.contracts.granting import Access, Resource
from mesh_runtime.contracts.identity import check_name


def _is_name(name: str) -> str:
    if name.startswith("pg-"):
        raise ValueError(f"a database's name is {name!r}: names that begin with 'pg-' are kept for the server")
    if name in ("public", "none"):
        raise ValueError(f"a database's name is {name!r}: PostgreSQL takes that word for something else than a role")
    return check_name("a database's name", name)


class DatabaseAccess(Access):
    """How to log in; the fields are those of libpq. Source: PostgreSQL documentation, 34.1.2 *Parameter Key Words*."""

    host: str
    port: int
    dbname: str
    user: str
    password: SecretStr
    sslmode: str = "prefer"

    def url(self) -> str:
        """The same as a URL, for a client that takes nothing else; everything in it is quoted. It holds the secret."""
        parts = {name: str(value) for name, value in self.fields().items()}
        parts |= {name: quote(text, safe="") for name, text in parts.items()}
        return "postgresql://{user}:{password}@/{dbname}?host={host}&port={port}&sslmode={sslmode}".format(**parts)


class Database(Resource[DatabaseAccess], provided_by="database"):
    """A database, owned by the module that was first granted it. 1 to 63 of ``a-z``, ``0-9`` and ``-``; not ``public``, not ``none``."""

    name: Annotated[str, AfterValidator(_is_name)]
