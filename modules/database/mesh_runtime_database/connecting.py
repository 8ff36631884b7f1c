"""The one way to the server: a session for each piece of work, always with a limit, never left behind.

Pieces of work are few (a grant, a rotation, a sweep a minute), so a session each is cheap, and none is stale. A server that falls silent in
the middle ends a piece of work at its limit: the socket is shut, not the query cancelled, since cancelling asks the silent server.

What works on one login or one database holds a lock of that name at the server for as long as its session lives. So work that was cut (its
process killed, its link lost) has either ended at the server before others go on with the same name, or is waited for, named.
"""

import asyncio
import contextlib
import hashlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg.errors import LockNotAvailable

from mesh_runtime.startup import Stage, blocked, waiting
from mesh_runtime_database.faults import translated
from mesh_runtime_database.linking import Connection, open_session
from mesh_runtime_database.marks import read_mark
from mesh_runtime_database.settings import ServerAt, read_server

T = TypeVar("T")

#: Seconds for one piece of work, for one statement, for a lock that somebody else holds.
LIMIT, STATEMENT, LOCK = 25.0, 15, 5
SCHEMA = "mesh_ledger"

#: Of each session. ``role`` and ``search_path``: what the owner of a database has set for all who log in to it does not hold for us. The
#: keepalives are the server's, so that it notices a client whose machine is gone, and frees its locks.
_LIMITS = {
    "statement_timeout": f"{STATEMENT}s",
    "lock_timeout": f"{LOCK}s",
    "idle_in_transaction_session_timeout": f"{LIMIT:.0f}s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "3",
    "tcp_keepalives_count": "3",
}
_ADMIN = {"role": "none", "search_path": "pg_catalog"}
# What is recorded here is acted on: it must be on the disk, whatever is set for others.
_ADMIN |= {"synchronous_commit": "on"}
_LINK = {"keepalives_idle": 10, "keepalives_interval": 3, "keepalives_count": 3, "gssencmode": "disable"}


class Server:
    """The server that the files in ``directory`` lead to. ``issuer`` names our sessions there."""

    def __init__(self, directory: Path, issuer: str) -> None:
        self._directory = directory
        self.issuer = issuer

    def at(self, stage: Stage = Stage.GRANTS) -> ServerAt:
        """Where it is now, and how to log in. Raises StageFault."""
        return read_server(self._directory, stage)

    async def work(self, do: Callable[[Connection], Awaitable[T]], stage: Stage = Stage.GRANTS, dbname: str = "") -> T:
        """Do one piece of work in a session of the administrator; each statement is a transaction unless ``do`` opens one.

        Raises StageFault of ``stage``: what it is waited for, or who must act.
        """
        fields = self.at(stage).fields() | ({"dbname": dbname} if dbname else {})
        return await work_at(fields, do, stage, f"mesh {self.issuer}", _ADMIN)


async def work_at(
    fields: Mapping[str, Any],
    do: Callable[[Connection], Awaitable[T]],
    stage: Stage,
    name: str,
    options: Mapping[str, str],
) -> T:
    """Do one piece of work in a session of whoever ``fields`` says, within the limits. Raises StageFault of ``stage``."""
    address = f"{fields['host']}:{fields['port']}"
    opened: list[Connection] = []
    work = asyncio.create_task(_in_session(fields, do, opened, name, options), name=f"work at {address}")
    work.add_done_callback(_seen)  # also an error in the very turn in which this is told to stop
    in_time: set[asyncio.Task[T]] = set()
    try:
        in_time, _ = await asyncio.wait([work], timeout=LIMIT)
    finally:
        if not work.done():
            await _cut_off(work, opened)
    if not in_time:
        raise waiting(stage, "silent", f"PostgreSQL at {address} was not done within {LIMIT:g} s", address)
    with translated(stage, address):
        try:
            return work.result()
        except OSError as error:
            raise waiting(stage, "unreachable", f"PostgreSQL at {address}: {error.strerror or error}", address) from error


async def _in_session(
    fields: Mapping[str, Any],
    do: Callable[[Connection], Awaitable[T]],
    opened: list[Connection],
    name: str,
    options: Mapping[str, str],
) -> T:
    given = " ".join(f"-c {key}={value}" for key, value in {**_LIMITS, **options}.items())
    connection = await open_session({**_LINK, **fields, "options": given, "application_name": name})
    opened.append(connection)
    try:
        return await do(connection)
    finally:
        await connection.close()


async def _cut_off(work: "asyncio.Task[Any]", opened: list[Connection]) -> None:
    """End work that is late, or whose awaiter is told to stop, within a second."""
    try:
        if opened:
            with contextlib.suppress(OSError, psycopg.OperationalError), socket.socket(fileno=os.dup(opened[0].fileno())) as link:
                link.shutdown(socket.SHUT_RDWR)
            await asyncio.wait([work], timeout=0.3)
    finally:  # told to stop once more meanwhile, or not: what it does besides on a session of its own ends with it
        work.cancel()
    await asyncio.wait([work], timeout=0.6)


def _seen(work: "asyncio.Task[Any]") -> None:
    if not work.cancelled():
        work.exception()


async def hold(connection: Connection, what: str) -> None:
    """Hold the lock of ``what`` until this session ends. Raises StageFault (waiting) that names who holds it."""
    key = int.from_bytes(hashlib.sha256(f"mesh-runtime-database {what}".encode()).digest()[:8], "big", signed=True)
    try:
        await connection.execute("SELECT pg_advisory_lock(%s)", (key,))
    except LockNotAvailable:
        held = "SELECT a.application_name, a.pid, a.backend_start FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
        by = "WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND (l.classid::bigint << 32) | l.objid::bigint = %s"
        rows = await (await connection.execute(f"{held} {by}", (key,))).fetchall()
        holder = (
            ", ".join(f"{name!r} (its process {pid}, since {since:%H:%M:%S})" for name, pid, since in rows) or "a session that has ended"
        )
        raise waiting(Stage.GRANTS, "locked", f"{what} is being worked on at the server by {holder}", what) from None


async def ledger_id(connection: Connection) -> str:
    """The id of the ledger of this server. Raises StageFault (blocked) if there is none: ``prepare`` makes it."""
    cursor = await connection.execute("SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s", (SCHEMA,))
    row = await cursor.fetchone()
    mark = read_mark(row[0]) if row else None
    if mark is None or mark.kind != "ledger":
        raise blocked(
            Stage.GRANTS, "no-ledger", f"the schema {SCHEMA} of the server is not there, or has lost its comment; it says whose it is"
        )
    return mark.ledger
