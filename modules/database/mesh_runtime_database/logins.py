"""Logins: made as members of an owner role, listed by their marks, retired for good.

A login works as its owner role from the start of each session (`ALTER ROLE … SET role`), so that what it creates belongs to that role. What
it made by hand as itself is handed over before it goes: nothing is dropped with it but its rights.
"""

import asyncio
from functools import partial

from psycopg.sql import SQL, Composed, Identifier, Literal
from pydantic import SecretStr

from mesh_runtime.startup import Stage, blocked, waiting
from mesh_runtime_database.connecting import Server, hold, ledger_id
from mesh_runtime_database.linking import Connection
from mesh_runtime_database.marks import Mark
from mesh_runtime_database.owning import act_for
from mesh_runtime_database.roles import Role, all_roles, find_role, is_superuser, not_ours

#: Seconds within which a login's sessions must have ended, and between two looks.
SESSIONS_END, LOOK = 10.0, 0.02

_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usesysid = %s"
_DEPENDANTS = """SELECT DISTINCT coalesce(d.datname, current_database()) FROM pg_shdepend s LEFT JOIN pg_database d ON d.oid = s.dbid
    WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = %s"""
#: Nobody's login has any of these. An administrator may have given one; it is taken back when the login is made again.
_UNDUE = """SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls FROM pg_roles WHERE rolname = %s"""
_TAKEN = ("NOSUPERUSER", "NOCREATEDB", "NOCREATEROLE", "NOREPLICATION", "NOBYPASSRLS")


def check_secret(secret: SecretStr) -> bytes:
    """The password's bytes. Raises StageFault (blocked) for one that the server could never accept; it is not shown."""
    text = secret.get_secret_value()
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:  # not chained: the error would carry the text
        raise blocked(
            Stage.GRANTS, "bad-secret", "the password is no text that can be written in UTF-8 (it holds half a surrogate pair)"
        ) from None
    if not data or b"\0" in data:
        what = "is empty" if not data else "holds a NUL, at which the server would cut it off"
        raise blocked(Stage.GRANTS, "bad-secret", f"the password {what}")
    return data


async def make_login(connection: Connection, login: str, secret: bytes, mark: Mark) -> None:
    """Make ``login`` a member of the owner role, whole or not at all. Raises StageFault if it is there and is not this very one."""
    role = await find_role(connection, login)
    if role is not None and (role.mark is None or not role.mark.stands_for(mark)):
        raise not_ours("role", login, role.mark)
    # Worked out here: the password itself stands in no statement, so in no log of the server, and in no view of what runs there.
    verifier = connection.pgconn.encrypt_password(secret, login.encode(), b"scram-sha-256").decode()
    name, note = Identifier(login), Literal(mark.text())
    async with connection.transaction():
        verb = SQL("CREATE ROLE" if role is None else "ALTER ROLE")
        await connection.execute(SQL("{} {} LOGIN INHERIT PASSWORD {}").format(verb, name, Literal(verifier)))
        if role is not None:
            await _take_back(connection, name, login)
        await connection.execute(SQL("COMMENT ON ROLE {} IS {}").format(name, note))
        await connection.execute(SQL("GRANT {} TO {}").format(Identifier(mark.database), name))
        await connection.execute(SQL("ALTER ROLE {} SET role = {}").format(name, Literal(mark.database)))
        if not await is_superuser(connection):
            await act_for(connection, login)


async def _take_back(connection: Connection, name: Identifier, login: str) -> None:
    row = await (await connection.execute(_UNDUE, (login,))).fetchone()
    undue = [SQL(word) for word, has in zip(_TAKEN, row or (), strict=False) if has]
    if undue:
        await connection.execute(SQL("ALTER ROLE {} {}").format(name, SQL(" ").join(undue)))


async def list_logins(connection: Connection) -> tuple[str, ...]:
    """Every login that was made beside this ledger."""
    ledger = await ledger_id(connection)
    return tuple(sorted(role.name for role in await all_roles(connection) if _ours(role, ledger)))


def _ours(role: Role, ledger: str) -> bool:
    return role.mark is not None and role.mark.kind == "login" and role.mark.ledger == ledger


async def retire_login(connection: Connection, server: Server, login: str) -> None:
    """End ``login``: it cannot log in from the first statement on, its sessions are ended, what it owns is its owner role's; then it goes.

    Already gone is done. Each statement may be the last one, and all be done again. Raises StageFault.
    """
    await hold(connection, f"login {login}")
    role = await find_role(connection, login)
    if role is None:
        return
    if not _ours(role, await ledger_id(connection)) or role.mark is None:
        raise not_ours("login", login, role.mark)
    name = Identifier(login)
    await connection.execute(SQL("ALTER ROLE {} NOLOGIN").format(name))
    await _end_sessions(connection, role)
    for database in [row[0] for row in await (await connection.execute(_DEPENDANTS, (role.oid,))).fetchall()]:
        await server.work(partial(_hand_over, login=login, owner=role.mark.database), dbname=database)
    await _end_sessions(connection, role)
    await connection.execute(SQL("DROP ROLE IF EXISTS {}").format(name))
    if await find_role(connection, login) is not None:
        raise waiting(Stage.GRANTS, "still-there", f"the role {login!r} is there again after it was dropped", login)
    await _end_sessions(connection, role)


async def _end_sessions(connection: Connection, role: Role) -> None:
    """End every session of ``role``, and return once there is none."""
    deadline = asyncio.get_running_loop().time() + SESSIONS_END
    while rows := await (await connection.execute(_SESSIONS, (role.oid,))).fetchall():
        if asyncio.get_running_loop().time() > deadline:
            words = f"{len(rows)} sessions of {role.name!r} were told to end and are still there after {SESSIONS_END:g} s"
            raise waiting(Stage.GRANTS, "sessions", words, role.name)
        await asyncio.sleep(LOOK)


async def _hand_over(connection: Connection, login: str, owner: str) -> None:
    """In one database: what ``login`` owns is the owner's from now on, and it has no right left. Whole or not at all."""
    steps: tuple[Composed, ...] = (
        SQL("REASSIGN OWNED BY {} TO {}").format(Identifier(login), Identifier(owner)),
        SQL("DROP OWNED BY {}").format(Identifier(login)),
    )
    async with connection.transaction():
        for step in steps:
            await connection.execute(step)
