"""A database, and the role to which it and all in it belong: that role cannot log in, and logins are its members.

The owner role has the database's name. It is made with its comment in one transaction, so that none is ever there unmarked. `CREATE
DATABASE` can be in no transaction; a database that was cut before it got its comment is known by its owner. Its owner may write its
comment, so that is not what is believed: whose a database is stands on the owner *role*, on which no consumer can write.
"""

from functools import partial

from psycopg.sql import SQL, Identifier, Literal

from mesh_runtime_database.connecting import Server
from mesh_runtime_database.linking import Connection
from mesh_runtime_database.marks import Mark, read_mark
from mesh_runtime_database.roles import find_role, is_superuser, not_ours


async def make_owner(connection: Connection, mark: Mark) -> None:
    """Make the owner role that ``mark`` describes, unless it is there. Raises StageFault if it is not ours, or another module's."""
    name, role = Identifier(mark.database), await find_role(connection, mark.database)
    if role is None:
        if (there := await _database(connection, mark.database)) is not None:  # before anything is made
            raise not_ours("database", mark.database, read_mark(there[1]))
        async with connection.transaction():
            await connection.execute(SQL("CREATE ROLE {} NOLOGIN").format(name))
            await connection.execute(SQL("COMMENT ON ROLE {} IS {}").format(name, Literal(mark.text())))
    elif role.mark is None or not role.mark.stands_for(mark):
        raise not_ours("role", mark.database, role.mark)
    elif role.can_login:
        await connection.execute(SQL("ALTER ROLE {} NOLOGIN").format(name))
    if not await is_superuser(connection):
        await act_for(connection, mark.database)


async def _database(connection: Connection, name: str) -> tuple[str, str | None] | None:
    """Its owner and its comment."""
    query = "SELECT pg_get_userbyid(datdba), shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s"
    row = await (await connection.execute(query, (name,))).fetchone()
    return (row[0], row[1]) if row else None


async def act_for(connection: Connection, role: str) -> None:
    """Be a member of a role that we made, with all its rights: without being a superuser we could not act for it otherwise."""
    options = SQL(" WITH INHERIT TRUE, SET TRUE") if connection.info.server_version >= 160000 else SQL("")
    await connection.execute(SQL("GRANT {} TO CURRENT_USER{}").format(Identifier(role), options))


async def make_database(connection: Connection, server: Server, mark: Mark) -> None:
    """Make the database that ``mark`` describes, owned by the role of the same name, closed to everybody else. Raises StageFault."""
    name = Identifier(mark.database)
    row = await _database(connection, mark.database)
    if row is None:
        # Not template1: what an administrator put there is not what the mesh gives out, and a session in it would refuse this.
        await connection.execute(SQL("CREATE DATABASE {} OWNER {} TEMPLATE template0").format(name, name))
        row = (mark.database, None)
    found = read_mark(row[1])
    if row[0] != mark.database or (found is not None and not found.stands_for(mark)):
        raise not_ours("database", mark.database, found)
    async with connection.transaction():
        await connection.execute(SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(name))
        if row[1] is None:
            await connection.execute(SQL("COMMENT ON DATABASE {} IS {}").format(name, Literal(mark.text())))
    await server.work(partial(_close_schema, owner=mark.database), dbname=mark.database)


async def _close_schema(connection: Connection, owner: str) -> None:
    """In the new database: the schema `public`, if it is still there, is the owner's alone. (Before 15 it is everybody's.)"""
    if (await (await connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'public'")).fetchone()) is None:
        return
    async with connection.transaction():
        await connection.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        await connection.execute(SQL("GRANT ALL ON SCHEMA public TO {}").format(Identifier(owner)))
