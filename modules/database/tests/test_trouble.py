"""Trouble at every statement: refused, its session cut once it is done, the server killed there. Done again, it converges (B60).

Which statements there are is learned from outside, by a proxy before the server. Each is refused once. Each that changes something is cut
after once: a cut before it is a cut after the one before, and a cut after one that only reads is too, since the server has seen the same.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import pytest

from mesh_runtime.grants.ledger import Moved, Record
from mesh_runtime.startup import Kind, StageFault
from mesh_runtime.testing.postgres import PrivatePostgres
from mesh_runtime.testing.statements import Statements, Trouble
from mesh_runtime_database import PostgreSQL
from mesh_runtime_database.marks import read_mark

if TYPE_CHECKING:
    from conftest import Provisioner

pytestmark = pytest.mark.timeout(180)

Kinds: TypeAlias = Literal["refuse", "cut-before", "cut-after"]
KINDS: tuple[Kinds, ...] = ("refuse", "cut-after")


async def listed(statements: Statements, doing: Awaitable[object]) -> list[str]:
    """The statements that there are in ``doing``."""
    statements.expect()
    await doing
    return list(statements.seen)


def places(kind: str, sent: list[str]) -> list[int]:
    """Where to make trouble of this kind. (A `SELECT pg_...` is one for its effect.)

    A server that is killed inside a transaction is, after its start, as it was before, wherever that was: once in each is enough.
    """
    found = [at for at, text in enumerate(sent) if kind == "refuse" or not text.startswith("SELECT") or text.startswith("SELECT pg_")]
    if kind != "kill":
        return found
    inside = [at for at in found if sent[:at].count("BEGIN") > sent[:at].count("COMMIT") and sent[at] != "COMMIT"]
    return [at for at in found if sent[at] != "BEGIN" and (at not in inside or at + 1 not in inside)]


async def troubled(statements: Statements, trouble: Trouble, doing: Awaitable[object]) -> StageFault | None:
    """What came of it. None: the last answer was lost, and nobody needed it."""
    statements.expect(trouble)
    try:
        await doing
    except StageFault as fault:
        assert statements.happened
        return fault
    assert trouble.kind != "refuse" or statements.seen[trouble.at] == "ROLLBACK", f"nobody noticed: {statements.seen[trouble.at]}"
    return None


def at_one(at: int, kind: Kinds) -> Trouble:
    """The disk is full, or the link is cut."""
    return Trouble(at, kind, "53100", "could not extend file: no space left on device")


def unmarked(postgres: PrivatePostgres) -> list[Any]:
    """Roles that were made and do not say by whom."""
    found = postgres.query("SELECT rolname, shobj_description(oid, 'pg_authid') FROM pg_roles WHERE oid >= 16384")
    return [name for name, comment in found if read_mark(comment) is None]


@pytest.mark.parametrize("kind", KINDS)
async def test_b60_making_a_grant_with_trouble_at_each_statement(provisioner: "Provisioner", kind: Kinds) -> None:
    """
    Removal: modules/database/mesh_runtime_database/logins.py: await connection.execute(SQL("COMMENT ON ROLE {} IS {}").format(name, note))
    Assertion: assert not unmarked(provisioner.postgres)
    """
    async with Statements(provisioner.postgres.port) as statements:
        provisioner.through(statements.port)
        module = await provisioner.prepared()
        for at, first, second in await making(provisioner, statements, module, kind):
            fault = await troubled(statements, at_one(at, kind), module.make(first))
            if kind == "refuse":
                assert fault is not None
                assert (fault.cause.kind, fault.cause.code) == (Kind.WAITING, "disk-full")
                assert "no space left on device (53100)" in fault.cause.text
            assert not unmarked(provisioner.postgres)
            if kind == "refuse":
                await _whole_again(provisioner, module, first)
            else:
                await _replaced(provisioner, module, first, second)


async def making(provisioner: "Provisioner", statements: Statements, module: PostgreSQL, kind: str) -> list[tuple[int, Any, Any]]:
    """Every statement of making a grant, with two claims to try it on: of a new database until it is made, of that one for the login."""

    def claims(database: str, number: int) -> tuple[Any, Any]:
        one, other = (
            provisioner.claim(database, f"{database}@alpha.0a1b2c3d4e5f.{each}", f"secret {each}") for each in (number, number + 1)
        )
        return one, other

    first, second = claims("made", 1)
    new = await listed(statements, module.make(first))
    assert not unmarked(provisioner.postgres)
    again = await listed(statements, module.make(second))
    for login in (first.login, second.login):
        await module.retire(login)
    login_in_new, login_in_again = (
        next(at for at, text in enumerate(sent) if "CREATE ROLE" in text and "@" in text) for sent in (new, again)
    )
    assert login_in_new > login_in_again > 5
    found = [(at, *claims(f"d{at}", 1)) for at in places(kind, new) if at < login_in_new]
    return found + [(at, *claims("made", 10 * at)) for at in places(kind, again) if at >= login_in_again - 1]


async def _whole_again(provisioner: "Provisioner", module: PostgreSQL, claim: Any) -> None:
    """The very same, made again, is whole."""
    await module.check(await module.make(claim))
    await module.retire(claim.login)
    assert not provisioner.logins(f"^{claim.resource.name}@")


async def _replaced(provisioner: "Provisioner", module: PostgreSQL, first: Any, second: Any) -> None:
    """As the library does: what was cut is nobody's, another login is drawn, and the first is retired."""
    await module.check(await module.make(second))
    await module.retire(first.login)
    assert set(provisioner.logins(f"^{first.resource.name}@")) == {second.login}, "exactly one login"
    await module.retire(second.login)


async def _worn(provisioner: "Provisioner", module: PostgreSQL, number: int) -> str:
    """A login that made something as itself, and holds a right in another database."""
    access = await module.make(provisioner.claim("worn", f"worn@alpha.0a1b2c3d4e5f.{number}"))
    await provisioner.run(access, f"CREATE TABLE kept_{number} AS SELECT 7 AS n", options="-c role=none")
    provisioner.postgres.query(f'GRANT CONNECT ON DATABASE other TO "{access.user}"')
    return access.user


@pytest.mark.parametrize("kind", KINDS)
async def test_retiring_with_trouble_at_each_statement(provisioner: "Provisioner", kind: Kinds) -> None:
    provisioner.postgres.query("CREATE DATABASE other")
    async with Statements(provisioner.postgres.port) as statements:
        provisioner.through(statements.port)
        module = await provisioner.prepared()
        sent = await listed(statements, module.retire(await _worn(provisioner, module, 1)))
        assert len(sent) > 15
        for at in places(kind, sent):
            login = await _worn(provisioner, module, at + 2)
            await troubled(statements, at_one(at, kind), module.retire(login))
            await module.retire(login)
            assert not provisioner.logins(login)
            kept = provisioner.postgres.query("SELECT tableowner FROM pg_tables WHERE tablename = %s", f"kept_{at + 2}", dbname="worn")
            assert kept == [("worn",)], "nothing is dropped with a login"


@pytest.mark.parametrize("kind", KINDS)
async def test_preparing_and_trying_with_trouble_at_each_statement(provisioner: "Provisioner", kind: Kinds) -> None:
    async with Statements(provisioner.postgres.port) as statements:
        provisioner.through(statements.port)
        module = provisioner.module(port=statements.port)
        sent = await listed(statements, module.prepare())
        for at in places(kind, sent):
            provisioner.postgres.query("DROP SCHEMA mesh_ledger CASCADE")
            await troubled(statements, at_one(at, kind), module.prepare())
            await module.prepare()
            assert await module.ledger().all() == ()
        access = await module.make(provisioner.claim())
        sent = await listed(statements, module.check(access))
        for at in places(kind, sent):
            await troubled(statements, at_one(at, kind), module.check(access))
            await module.check(access)


async def test_writing_the_ledger_with_trouble_at_each_statement(provisioner: "Provisioner") -> None:
    async with Statements(provisioner.postgres.port) as statements:
        provisioner.through(statements.port)
        ledger = (await provisioner.prepared()).ledger()
        for number, kind in enumerate(get_args(Kinds)):
            record = Record(resource=f"database.1/d{number}", fields="{}", consumer="orders@alpha")
            for key in ("first", "second"):
                fault = await troubled(statements, at_one(0, kind), ledger.write(record.model_copy(update={"key": key})))
                assert fault is not None, "a write whose outcome is not known must not return"
                if kind == "cut-after":
                    with pytest.raises(Moved):
                        await ledger.write(record.model_copy(update={"key": key}))
                else:
                    await ledger.write(record.model_copy(update={"key": key}))
                found = await ledger.read(record.resource, record.consumer)
                assert found is not None
                assert (found.key, found.version) == (key, record.version + 1)
                record = found


async def test_b60_the_server_is_killed_after_each_statement_of_making_and_retiring(provisioner: "Provisioner") -> None:
    """It needs no `fsync` for that: what a process has written outlives the process."""
    postgres = provisioner.postgres
    postgres.query("CREATE DATABASE other")

    async def kill() -> None:
        postgres.kill()  # not in a thread: nothing else is to happen meanwhile

    async def killed(at: int, doing: Awaitable[object]) -> None:
        await troubled(statements, Trouble(at, "cut-after", act=kill), doing)
        assert not postgres.running
        await asyncio.to_thread(postgres.start)

    async with Statements(postgres.port) as statements:
        provisioner.through(statements.port)
        module = await provisioner.prepared()
        for at, first, second in await making(provisioner, statements, module, "kill"):
            await killed(at, module.make(first))
            assert not unmarked(postgres)
            await _replaced(provisioner, module, first, second)
        sent = await listed(statements, module.retire(await _worn(provisioner, module, 1)))
        for at in places("kill", sent):
            login = await _worn(provisioner, module, at + 2)
            await killed(at, module.retire(login))
            await module.retire(login)
            assert not provisioner.logins(login)
