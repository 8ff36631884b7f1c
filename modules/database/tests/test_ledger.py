"""The ledger on the server: what every ledger must do, and what only this one must."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg
import pytest

from mesh_runtime.grants.ledger import Ledger, Record
from mesh_runtime.startup import Kind, StageFault
from mesh_runtime.testing.ledgers import LedgerSpecification, record_of
from mesh_runtime_database import connecting

if TYPE_CHECKING:
    from conftest import Provisioner


class TestPostgresLedger(LedgerSpecification):
    """The specification of the library, on PostgreSQL."""

    @pytest.fixture
    async def open_ledger(self, provisioner: "Provisioner") -> Callable[[], Ledger]:
        await provisioner.prepared()
        return lambda: provisioner.module().ledger()


async def test_a_record_outlives_the_servers_sudden_end(provisioner: "Provisioner") -> None:
    ledger = (await provisioner.prepared()).ledger()
    written = await ledger.write(record_of())
    provisioner.postgres.kill()
    await asyncio.to_thread(provisioner.postgres.start)
    assert await ledger.all() == (written,)


async def test_it_is_durable_though_the_server_is_told_not_to_be(provisioner: "Provisioner") -> None:
    """
    Removal: modules/database/mesh_runtime_database/connecting.py: _ADMIN |= {"synchronous_commit": "on"}
    Assertion: assert seen == ("on",)
    """
    provisioner.postgres.query("ALTER ROLE postgres SET synchronous_commit = off")
    module = await provisioner.prepared()

    async def look(connection: psycopg.AsyncConnection[tuple[str]]) -> object:
        return await (await connection.execute("SHOW synchronous_commit")).fetchone()

    seen = await module.server.work(look)
    assert seen == ("on",)
    provisioner.postgres.query("ALTER ROLE postgres RESET synchronous_commit")


async def test_it_holds_no_secret_and_nobody_else_reads_it(provisioner: "Provisioner") -> None:
    ledger = (await provisioner.prepared()).ledger()
    await ledger.write(record_of())
    rights = "SELECT has_schema_privilege('public', 'mesh_ledger', 'USAGE'), has_table_privilege('public', 'mesh_ledger.grants', 'SELECT')"
    assert provisioner.postgres.query(rights) == [(False, False)]


@pytest.mark.parametrize(("change", "words"), [("record || 'x'", "is damaged"), ("replace(record, 'reader', 'other')", "is that of")])
async def test_a_damaged_record_is_named_and_not_overlooked(provisioner: "Provisioner", change: str, words: str) -> None:
    ledger = (await provisioner.prepared()).ledger()
    await ledger.write(record_of())
    await ledger.write(record_of("thing.1/two"))
    provisioner.postgres.query(f"UPDATE mesh_ledger.grants SET record = {change} WHERE resource = 'thing.1/two'")  # noqa: S608 - of this test
    for doing in (ledger.all(), ledger.read("thing.1/two", "reader@alpha")):
        fault = await provisioner.fault(doing)
        assert (fault.cause.kind, fault.cause.code) == (Kind.BLOCKED, "damaged-ledger")
        assert f"thing.1/two for reader@alpha in mesh_ledger.grants {words}" in fault.cause.text
    assert await ledger.read("thing.1/one", "reader@alpha")


async def test_a_ledger_that_lost_its_comment_is_refused(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    provisioner.postgres.query("COMMENT ON SCHEMA mesh_ledger IS NULL")
    for doing, code in ((module.make(provisioner.claim()), "no-ledger"), (module.logins(), "no-ledger"), (module.prepare(), "not-ours")):
        fault = await provisioner.fault(doing)
        assert (fault.cause.kind, fault.cause.code) == (Kind.BLOCKED, code)


async def test_preparing_again_keeps_what_is_there(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    written = await module.ledger().write(Record(resource="database.1/orders", fields="{}", consumer="orders@alpha"))
    comment = provisioner.postgres.query("SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 'mesh_ledger'")
    await asyncio.gather(*(provisioner.module(machine).prepare() for machine in ("alpha", "beta", "gamma")))
    assert await module.ledger().all() == (written,)
    again = provisioner.postgres.query("SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = 'mesh_ledger'")
    assert again == comment


async def test_two_that_prepare_at_once_make_one_ledger(provisioner: "Provisioner") -> None:
    modules = [provisioner.module(machine) for machine in ("alpha", "beta", "gamma", "delta")]
    await asyncio.gather(*(module.prepare() for module in modules))
    await modules[0].make(provisioner.claim())
    assert [tuple(await module.logins()) for module in modules] == [("orders@alpha.0a1b2c3d4e5f.1",)] * 4


async def test_who_works_on_the_same_login_is_waited_for_and_named(provisioner: "Provisioner", monkeypatch: pytest.MonkeyPatch) -> None:
    """A provisioner that was killed may still be at work at the server; nobody takes its login for gone before it has ended.

    Removal: modules/database/mesh_runtime_database/logins.py: await hold(connection, f"login {login}")
    Assertion: assert code == "locked"
    """
    monkeypatch.setitem(connecting._LIMITS, "lock_timeout", "300ms")
    module, reached, let_go = await provisioner.prepared(), asyncio.Event(), asyncio.Event()

    async def hung(connection: psycopg.AsyncConnection[tuple[object]]) -> None:
        await connecting.hold(connection, "login orders@alpha.0a1b2c3d4e5f.1")
        reached.set()
        await let_go.wait()

    hanging = asyncio.ensure_future(provisioner.module("beta").server.work(hung))
    await reached.wait()
    code, text = "", ""
    try:
        await module.retire("orders@alpha.0a1b2c3d4e5f.1")
    except StageFault as locked:
        code, text = locked.cause.code, locked.cause.text
    assert code == "locked"
    assert "'mesh database@beta' (its process " in text
    fault = await provisioner.fault(module.make(provisioner.claim()))
    assert (fault.cause.kind, fault.cause.code) == (Kind.WAITING, "locked")
    let_go.set()
    await hanging
    await module.retire("orders@alpha.0a1b2c3d4e5f.1")
