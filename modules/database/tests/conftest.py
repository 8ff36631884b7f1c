"""*provisioner*: the module on a private PostgreSQL, and what a test needs to ask it and to look at its server from outside."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

import psycopg
import pytest
from pydantic import SecretStr

from mesh_runtime.contracts import Identity
from mesh_runtime.contracts.database import Database, DatabaseAccess
from mesh_runtime.grants.providing import Claim
from mesh_runtime.startup import StageFault
from mesh_runtime.testing.postgres import PrivatePostgres
from mesh_runtime_database import PostgreSQL
from mesh_runtime_database.settings import DatabaseSettings

Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]

LOGIN = "orders@alpha.0a1b2c3d4e5f.1"
SECRET = "drawn-by-the-library-31337"


class Provisioner:
    """The module as it is after a start, and its server."""

    def __init__(self, postgres: PrivatePostgres, directory: Path) -> None:
        self.postgres = postgres
        self.directory = directory
        self.files = postgres.write_server(directory / "server")

    def module(self, machine: str = "alpha", **settings: Any) -> PostgreSQL:
        """As it is after a start."""
        own = DatabaseSettings(server=self.files, **settings)
        return PostgreSQL(Identity("database", machine), own, self.directory / "state", cast("Any", None), cast("Any", None))

    async def prepared(self) -> PostgreSQL:
        """As it is when it is ready."""
        module = self.module()
        await module.prepare()
        return module

    def through(self, port: int) -> None:
        """Have the module dial this port."""
        self.postgres.write_server(self.files, port=str(port))

    def logins(self, pattern: str = "@") -> dict[str, bool]:
        """Roles that are named like logins, and whether they can log in, as the server has them."""
        return dict(self.postgres.query("SELECT rolname, rolcanlogin FROM pg_roles WHERE rolname ~ %s", pattern))

    def sessions_of(self, login: str) -> int:
        """Sessions that are open for a login."""
        return len(self.postgres.query("SELECT FROM pg_stat_activity WHERE usename = %s", login))

    def claim(self, database: str = "orders", login: str = LOGIN, secret: str = SECRET, **changes: Any) -> Claim[Database]:
        """What the library would ask the module to make; the login's name says for whom, and its number in order."""
        consumer, _, rest = login.partition(".")
        number = int(rest.rpartition(".")[2] or 1)
        made = Claim(Database(name=database), consumer, consumer.partition("@")[0], login, SecretStr(secret), number)
        return made._replace(**changes)

    @asynccontextmanager
    async def session(self, access: DatabaseAccess, **changes: Any) -> AsyncIterator[Connection]:
        """A session of the consumer, by fields."""
        connection = await psycopg.AsyncConnection.connect(**access.fields() | {"connect_timeout": 5} | changes, autocommit=True)
        try:
            yield connection
        finally:
            await connection.close()

    async def run(self, access: DatabaseAccess, text: str, **changes: Any) -> list[tuple[Any, ...]]:
        """Run one statement as the consumer; its rows."""
        async with self.session(access, **changes) as connection:
            cursor = await connection.execute(text.encode())
            return await cursor.fetchall() if cursor.description else []

    async def refusal(self, access: DatabaseAccess, **changes: Any) -> str:
        """With which words the server refuses a login; empty if it does not."""
        try:
            async with self.session(access, **changes):
                return ""
        except psycopg.OperationalError as error:
            return str(error)

    async def fault(self, doing: Awaitable[object]) -> StageFault:
        """The fault that ``doing`` raises."""
        with pytest.raises(StageFault) as raised:
            await doing
        return raised.value


@pytest.fixture
def provisioner(postgres: PrivatePostgres, tmp_path: Path) -> Provisioner:
    """A module of its own for each test, on a server that is empty."""
    return Provisioner(postgres, tmp_path)


@pytest.fixture
def make_provisioner(tmp_path: Path) -> Callable[[PrivatePostgres], Provisioner]:
    """The same on a server of the test's own."""
    return lambda postgres: Provisioner(postgres, tmp_path)
