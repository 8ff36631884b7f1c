"""The ledger: records in a schema of the server on which their effect lives, so that both are lost or kept together.

`write` is one statement that compares and sets. A record is durable when it returns (`synchronous_commit`); if the link is lost
midway it may stand or not, and whoever writes again with the same version is told that it moved.
"""

import uuid
from functools import partial

from psycopg.sql import SQL, Identifier, Literal
from pydantic import ValidationError

from mesh_runtime.grants.ledger import Moved, Record
from mesh_runtime.startup import Stage, blocked
from mesh_runtime_database.connecting import SCHEMA, Server
from mesh_runtime_database.linking import Connection
from mesh_runtime_database.marks import Mark, read_mark

OLDEST = 130000
"""The oldest server that is served, as `server_version_num` says it."""

_TABLE = """CREATE TABLE IF NOT EXISTS mesh_ledger.grants (
    resource text NOT NULL,
    consumer text NOT NULL,
    version bigint NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (resource, consumer)
)"""
_INSERT = "INSERT INTO mesh_ledger.grants (resource, consumer, version, record) VALUES (%s, %s, 1, %s) ON CONFLICT DO NOTHING"
_UPDATE = "UPDATE mesh_ledger.grants SET version = version + 1, record = %s WHERE resource = %s AND consumer = %s AND version = %s"


async def make_ready(connection: Connection, issuer: str) -> None:
    """Check that the server can be served, and make the ledger's schema. Repeatable. Raises StageFault."""
    await _must_serve(connection)
    # Of two that make it at once the second waits, and finds it made. In one transaction, so that none is ever there without its comment.
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('mesh-runtime-database ledger'))")
        found = await connection.execute("SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s", (SCHEMA,))
        row = await found.fetchone()
        if row is not None and ((mark := read_mark(row[0])) is None or mark.kind != "ledger"):
            words = f"the schema {SCHEMA} is there and does not say by its comment that it is a ledger of the mesh: it is left alone"
            raise blocked(Stage.PREPARE, "not-ours", words)
        await connection.execute("CREATE SCHEMA IF NOT EXISTS mesh_ledger")
        await connection.execute(_TABLE)
        await connection.execute("REVOKE ALL ON SCHEMA mesh_ledger FROM PUBLIC")
        await connection.execute("REVOKE ALL ON mesh_ledger.grants FROM PUBLIC")
        if row is None:
            mark = Mark(kind="ledger", ledger=uuid.uuid4().hex, issuer=issuer)
            await connection.execute(SQL("COMMENT ON SCHEMA {} IS {}").format(Identifier(SCHEMA), Literal(mark.text())))


async def _must_serve(connection: Connection) -> None:
    at = f"PostgreSQL at {connection.info.host}:{connection.info.port}"
    if (version := connection.info.server_version) < OLDEST:
        raise blocked(Stage.PREPARE, "too-old", f"{at} is of version {version // 10000}: it must be {OLDEST // 10000} or newer")
    cursor = await connection.execute("SELECT rolsuper, rolcreaterole, rolcreatedb, rolinherit FROM pg_roles WHERE rolname = current_user")
    row = await cursor.fetchone()
    if row is None or not (row[0] or all(row[1:])):
        words = f"{connection.info.user} must be a superuser, or have CREATEROLE, CREATEDB and INHERIT: ALTER ROLE gives it what it lacks"
        raise blocked(Stage.PREPARE, "no-permission", f"{at}: {words}")


class PostgresLedger:
    """Keeps the records on ``server``. Each call is a session of its own. Raises StageFault for all that the server refuses."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def read(self, resource: str, consumer: str) -> Record | None:
        """The record of this grant, or None: there never was one."""
        found = await self._server.work(partial(_select, where=(resource, consumer)))
        return found[0] if found else None

    async def all(self) -> tuple[Record, ...]:
        """Every record."""
        return await self._server.work(_select)

    async def write(self, record: Record) -> Record:
        """Store ``record`` if the stored one has its ``version`` (none, for 0). Raises Moved if it has another."""
        text = record.model_dump_json(exclude={"version"})
        if record.version == 0:
            stored = await self._server.work(partial(_write, statement=_INSERT, values=(record.resource, record.consumer, text)))
        else:
            values = (text, record.resource, record.consumer, record.version)
            stored = await self._server.work(partial(_write, statement=_UPDATE, values=values))
        if not stored:
            raise Moved(f"the record of {record.resource} for {record.consumer} has another version than {record.version} by now")
        return record.model_copy(update={"version": record.version + 1})


async def _select(connection: Connection, where: tuple[str, str] | None = None) -> tuple[Record, ...]:
    columns = "SELECT resource, consumer, version, record FROM mesh_ledger.grants"
    if where is None:
        cursor = await connection.execute(f"{columns} ORDER BY resource, consumer")
    else:
        cursor = await connection.execute(f"{columns} WHERE resource = %s AND consumer = %s", where)
    return tuple([_record(*row) for row in await cursor.fetchall()])


def _record(resource: str, consumer: str, version: int, text: str) -> Record:
    try:
        found = Record.model_validate_json(text)
    except ValidationError as error:
        words = f"the record of {resource} for {consumer} in mesh_ledger.grants is damaged: {error.error_count()} of its fields are wrong"
        raise blocked(Stage.GRANTS, "damaged-ledger", words) from None
    if (found.resource, found.consumer) != (resource, consumer):
        words = f"the record of {resource} for {consumer} in mesh_ledger.grants is that of {found.resource} for {found.consumer}"
        raise blocked(Stage.GRANTS, "damaged-ledger", words)
    return found.model_copy(update={"version": version})


async def _write(connection: Connection, statement: str, values: tuple[str | int, ...]) -> bool:
    cursor = await connection.execute(statement.encode(), values)
    return cursor.rowcount == 1
