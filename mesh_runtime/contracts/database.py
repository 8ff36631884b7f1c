"""The resource of the module ``database``: a PostgreSQL database, and the access to it."""

from typing import Annotated
from urllib.parse import quote

from pydantic import AfterValidator, SecretStr

from mesh_runtime.contracts.granting import Access, Resource
from mesh_runtime.contracts.identity import check_name


def _is_name(name: str) -> str:
    if name.startswith("pg-"):
        raise ValueError(f"a database's name is {name!r}: names that begin with 'pg-' are kept for the server")
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
        user, password, name, host, mode = (
            quote(one, safe="") for one in (self.user, self.password.get_secret_value(), self.dbname, self.host, self.sslmode)
        )
        return f"postgresql://{user}:{password}@/{name}?host={host}&port={self.port}&sslmode={mode}"


class Database(Resource[DatabaseAccess], provided_by="database"):
    """A database of this name, owned by the module that was first granted it. 1 to 63 of ``a-z``, ``0-9`` and ``-``."""

    name: Annotated[str, AfterValidator(_is_name)]
