"""Revocation: no login from the first statement on, no session left, gone though it owns things, and nothing of these is dropped."""

import asyncio
import contextlib
from typing import TYPE_CHECKING

import psycopg
import pytest

from mesh_runtime.startup import Kind
from mesh_runtime.testing.waiting import until

if TYPE_CHECKING:
    from conftest import Provisioner

OTHER = "orders@beta.1b2c3d4e5f60.1"


async def test_live_sessions_end_and_the_next_login_is_refused(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    access, other = await module.make(provisioner.claim()), await module.make(provisioner.claim(login=OTHER))
    async with provisioner.session(access) as idle, provisioner.session(access) as busy, provisioner.session(other) as left:
        sleeping = asyncio.ensure_future(busy.execute("SELECT pg_sleep(600)"))
        active = "SELECT 1 FROM pg_stat_activity WHERE usename = %s AND state = 'active'"
        await until(lambda: provisioner.postgres.query(active, access.user), "the statement runs")
        await module.retire(access.user)
        with pytest.raises(psycopg.OperationalError):
            await sleeping
        with pytest.raises(psycopg.OperationalError):
            await idle.execute("SELECT 1")
        assert await (await left.execute("SELECT 1")).fetchone() == (1,)
    assert "password authentication failed" in await provisioner.refusal(access)
    assert provisioner.postgres.query("SELECT 1 FROM pg_roles WHERE rolname = %s", access.user) == []


async def test_it_goes_though_it_owns_things_in_two_databases_and_they_stay(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    provisioner.postgres.query("CREATE DATABASE elsewhere")
    provisioner.postgres.query(f'GRANT ALL ON DATABASE elsewhere TO "{access.user}"')
    provisioner.postgres.query(f'GRANT ALL ON SCHEMA public TO "{access.user}"', dbname="elsewhere")
    for dbname in ("orders", "elsewhere"):
        for statement in (
            "CREATE SCHEMA own",
            "CREATE TABLE own.kept AS SELECT 7 AS n",
            "CREATE FUNCTION own.seven() RETURNS integer LANGUAGE sql RETURN 7",
            "CREATE TYPE own.pair AS (a integer, b integer)",
            "ALTER DEFAULT PRIVILEGES IN SCHEMA own GRANT SELECT ON TABLES TO PUBLIC",
            "GRANT SELECT ON own.kept TO PUBLIC",
            "SELECT lo_create(4711)",
        ):
            await provisioner.run(access, statement, dbname=dbname, options="-c role=none")
    await module.retire(access.user)
    assert provisioner.postgres.query("SELECT 1 FROM pg_roles WHERE rolname = %s", access.user) == []
    for dbname in ("orders", "elsewhere"):
        assert provisioner.postgres.query("SELECT n, own.seven() FROM own.kept", dbname=dbname) == [(7, 7)]
        owners = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'own'::regnamespace"
        assert provisioner.postgres.query(owners, dbname=dbname) == [("orders",)]
        assert provisioner.postgres.query("SELECT pg_get_userbyid(lomowner) FROM pg_largeobject_metadata", dbname=dbname) == [("orders",)]


async def test_already_gone_is_done_and_so_is_what_never_was(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    await module.retire(access.user)
    await module.retire(access.user)
    await module.retire(OTHER)
    assert await module.logins() == ()


async def test_nobody_gets_in_while_it_is_being_retired(provisioner: "Provisioner") -> None:
    """A client that reconnects without end, as a pool does, is out when `retire` returns.

    Removal: modules/database/mesh_runtime_database/logins.py: await connection.execute(SQL("ALTER ROLE {} NOLOGIN").format(name))
    Assertion: assert "".join(refusals[:1]).endswith("is not permitted to log in"), fault
    """
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    refusals: list[str] = []

    async def insist() -> None:
        while True:
            try:
                async with provisioner.session(access) as connection:
                    await connection.execute("SELECT pg_sleep(600)")
            except psycopg.OperationalError as error:
                if "FATAL" in str(error) and "terminating" not in str(error):
                    refusals.append(str(error).strip())

    insisting = [asyncio.ensure_future(insist()) for _ in range(3)]
    await until(lambda: provisioner.sessions_of(access.user) == 3, "all are in")
    # A lock on what it owns holds `retire` up after its first statements, long enough for everybody to come back.
    await provisioner.run(access, "CREATE TABLE own (n integer)", options="-c role=none")
    async with await psycopg.AsyncConnection.connect(**provisioner.postgres.superuser | {"dbname": "orders"}) as reading:
        await reading.execute("SELECT * FROM own")
        retiring = asyncio.ensure_future(module.retire(access.user))
        with contextlib.suppress(AssertionError):
            await until(lambda: refusals or retiring.done(), "somebody came back")
    (fault,) = await asyncio.gather(retiring, return_exceptions=True)
    for one in insisting:
        one.cancel()
    await asyncio.gather(*insisting, return_exceptions=True)
    assert "".join(refusals[:1]).endswith("is not permitted to log in"), fault
    assert fault is None
    assert provisioner.sessions_of(access.user) == 0


async def test_a_lock_on_what_it_owns_is_waited_for_and_said(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    await provisioner.run(access, "CREATE TABLE own (n integer)", options="-c role=none")
    async with await psycopg.AsyncConnection.connect(**provisioner.postgres.superuser | {"dbname": "orders"}) as reading:
        await reading.execute("SELECT * FROM own")
        fault = await provisioner.fault(module.retire(access.user))
        assert (fault.cause.kind, fault.cause.code) == (Kind.WAITING, "locked")
        assert provisioner.logins(access.user) == {access.user: False}, "it cannot log in any more, all the same"
        assert await module.logins() == (access.user,)
    await module.retire(access.user)
    assert await module.logins() == ()
