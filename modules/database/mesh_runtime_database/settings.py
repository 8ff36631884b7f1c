"""What an operator says to the module: `MESH_DATABASE_SERVER`, and `MESH_DATABASE_HOST` and `MESH_DATABASE_PORT` for consumers.

The login stands in files, one a field, so that nothing in it is ever read as syntax. They are read afresh for each connection: a password
that was changed takes effect without a restart.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr

from mesh_runtime.logging import register_secret
from mesh_runtime.settings import ModuleSettings, NotThereYet, read_file
from mesh_runtime.startup import Stage, blocked, waiting

SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_DEFAULTS = {"port": "5432", "dbname": "postgres", "sslmode": "prefer"}


class DatabaseSettings(ModuleSettings):
    """The module's own settings."""

    server: Path = Field(
        description="A directory with the files `host`, `user` and `password`, and where they differ from PostgreSQL's defaults `port`, "
        "`dbname` and `sslmode`, each with one value; for `verify-ca` and `verify-full` also `ca.pem`. The login must be a superuser, or "
        "have CREATEROLE and CREATEDB. In the database `dbname` the schema `mesh_ledger` is made. Read afresh for each connection; the "
        "files may come later.",
        examples=["/run/mesh/postgresql"],
    )
    host: str = Field(
        default="",
        description="The host at which consumers reach the server, if it is another than in the file `host`.",
        examples=["10.0.0.7"],
    )
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None,
        description="The port at which consumers reach the server, if it is another than in the file `port`.",
        examples=["5432"],
    )


@dataclass(frozen=True, slots=True)
class ServerAt:
    """How to log in to the server, as it stood in its files at one moment."""

    host: str
    port: int
    user: str
    password: SecretStr
    dbname: str
    sslmode: str
    root: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def fields(self) -> dict[str, Any]:
        """libpq's fields, the secret revealed."""
        fields = {"host": self.host, "port": self.port, "user": self.user, "dbname": self.dbname, "sslmode": self.sslmode}
        return fields | {"password": self.password.get_secret_value()} | ({"sslrootcert": self.root} if self.root else {})


def read_server(directory: Path, stage: Stage) -> ServerAt:
    """Read the files. Raises StageFault: waiting for one that is not there yet, blocked for one that holds no such value."""
    port = _value(
        directory, "port", stage, lambda text: text.isascii() and text.isdecimal() and 0 < int(text) < 65536, "a port is 1 to 65535"
    )
    sslmode = _value(directory, "sslmode", stage, lambda text: text in SSL_MODES, f"it must be one of {', '.join(SSL_MODES)}")
    password = _value(directory, "password", stage)
    register_secret(password)
    root = directory / "ca.pem"
    if sslmode.startswith("verify") and not root.exists():
        raise waiting(stage, "not-there-yet", f"{root} is not there yet, and the file sslmode says {sslmode}")
    host, user, dbname = (_value(directory, name, stage) for name in ("host", "user", "dbname"))
    return ServerAt(host, int(port), user, SecretStr(password), dbname, sslmode, str(root) if root.exists() else "")


def _value(directory: Path, name: str, stage: Stage, right: Callable[[str], bool] = lambda _: True, wanted: str = "") -> str:
    path = directory / name
    default = _DEFAULTS.get(name)
    if default is not None and directory.is_dir() and not path.exists():
        return default
    try:
        text = read_file(path).decode("utf-8")
    except NotThereYet as error:
        raise waiting(stage, "not-there-yet", str(error)) from None
    except UnicodeDecodeError:  # not chained: the error would carry the bytes
        raise blocked(stage, "server-files", f"{path} is not UTF-8") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text or "\0" in text:
        raise blocked(stage, "server-files", f"{path} {'holds a NUL' if text else 'is empty'}")
    if not right(text):
        raise blocked(stage, "server-files", f"{path} holds {text[:80]!r}: {wanted}")
    return text
