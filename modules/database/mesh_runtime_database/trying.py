"""Trying a grant: logging in as the consumer would, and writing something that is taken back."""

import secrets
from functools import partial

from psycopg.sql import SQL, Identifier

from mesh_runtime.contracts.database import DatabaseAccess
from mesh_runtime.startup import Stage, blocked
from mesh_runtime_database.connecting import work_at
from mesh_runtime_database.linking import Connection


async def try_access(access: DatabaseAccess) -> None:
    """Log in with ``access``, and write as its owner role would. Raises StageFault."""
    await work_at(access.fields(), partial(_try, access=access), Stage.GRANTS, "mesh trial", {})


async def _try(connection: Connection, access: DatabaseAccess) -> None:
    cursor = await connection.execute("SELECT session_user, current_user, current_database()")
    seen = await cursor.fetchone()
    wanted = (access.user, access.dbname, access.dbname)
    if seen != wanted:
        words = f"a session of {access.user!r} should be (login, role, database) {wanted}, and is {seen}"
        raise blocked(Stage.GRANTS, "other-role", words, access.user)
    # A schema of its own: `public` is the consumer's, who may have dropped it.
    name = Identifier(f"mesh-trial-{secrets.token_hex(8)}")
    async with connection.transaction(force_rollback=True):
        await connection.execute(SQL("CREATE SCHEMA {}").format(name))
        await connection.execute(SQL("CREATE TABLE {}.tried (n integer)").format(name))
        await connection.execute(SQL("INSERT INTO {}.tried VALUES (1)").format(name))
