"""The runtime: PostgreSQL as the mesh sees it, a provisioner of databases."""

from collections.abc import Collection
from functools import partial

from mesh_runtime import ModuleRuntime
from mesh_runtime.contracts.database import Database, DatabaseAccess
from mesh_runtime.grants.providing import Claim, Provides
from mesh_runtime.startup import Stage
from mesh_runtime_database.connecting import Server, hold, ledger_id
from mesh_runtime_database.ledger import PostgresLedger, make_ready
from mesh_runtime_database.linking import Connection
from mesh_runtime_database.logins import check_secret, list_logins, make_login, retire_login
from mesh_runtime_database.marks import Mark
from mesh_runtime_database.names import check_database, check_login
from mesh_runtime_database.owning import make_database, make_owner
from mesh_runtime_database.settings import DatabaseSettings
from mesh_runtime_database.trying import try_access


class PostgreSQL(ModuleRuntime, Provides[Database, DatabaseAccess]):
    """Grants databases of one PostgreSQL server (13 or newer). It never drops data, and touches nothing that is not its own."""

    module = "database"
    settings: DatabaseSettings

    @property
    def server(self) -> Server:
        """The server; its files are read for each session."""
        return Server(self.settings.server, str(self.identity))

    async def prepare(self) -> None:
        """Log in, see that the server can be served, and make the ledger's schema."""
        await self.server.work(partial(make_ready, issuer=str(self.identity)), Stage.PREPARE)

    def ledger(self) -> PostgresLedger:
        """In the schema `mesh_ledger` of the same server."""
        return PostgresLedger(self.server)

    async def make(self, claim: Claim[Database]) -> DatabaseAccess:
        """Make the database, its owner role and the login. Repeatable after a cut between any two statements."""
        name, login, secret = check_database(claim.resource.name), check_login(claim.login), check_secret(claim.secret)
        await self.server.work(partial(self._make, claim=claim, name=name, login=login, secret=secret))
        at = self.server.at()
        return DatabaseAccess(
            host=self.settings.host or at.host,
            port=self.settings.port or at.port,
            dbname=name,
            user=login,
            password=claim.secret,
            # The consumer has not the CA by which a certificate is verified here; it can insist on TLS.
            sslmode="require" if at.sslmode.startswith("verify") else at.sslmode,
        )

    async def _make(self, connection: Connection, claim: Claim[Database], name: str, login: str, secret: bytes) -> None:
        await hold(connection, f"database {name}")
        await hold(connection, f"login {login}")
        owner = Mark(
            kind="owner",
            ledger=await ledger_id(connection),
            issuer=str(self.identity),
            resource=claim.resource.text,
            database=name,
            owner=claim.owner,
        )
        await make_owner(connection, owner)
        await make_database(connection, self.server, owner.model_copy(update={"kind": "database"}))
        member = owner.model_copy(update={"kind": "login", "consumer": claim.consumer, "sequence": claim.sequence})
        await make_login(connection, login, secret, member)

    async def check(self, access: DatabaseAccess) -> None:
        """Log in as the consumer would, and write."""
        await try_access(access)

    async def retire(self, login: str) -> None:
        """End the login and its sessions; what it owns becomes its owner role's."""
        check_login(login)
        await self.server.work(partial(retire_login, server=self.server, login=login))

    async def logins(self) -> Collection[str]:
        """Every login that was made beside this ledger."""
        return await self.server.work(list_logins)
