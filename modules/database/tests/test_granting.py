"""A database that is granted: whose it is, who may do what in it, and what a second grant finds."""

from typing import TYPE_CHECKING

import pytest

from mesh_runtime.startup import Kind, Stage
from mesh_runtime_database.marks import read_mark

if TYPE_CHECKING:
    from conftest import Provisioner

OTHER = "orders@beta.1b2c3d4e5f60.1"
STRANGER = "reports@alpha.2c3d4e5f6071.1"


async def test_the_consumer_logs_in_works_as_the_owner_and_what_it_makes_is_the_owners(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    await module.check(access)
    await provisioner.run(access, "CREATE TABLE made (n integer)")
    await provisioner.run(access, "INSERT INTO made VALUES (1)")
    seen = await provisioner.run(access, "SELECT session_user, current_user, tableowner FROM pg_tables WHERE tablename = 'made'")
    assert seen == [("orders@alpha.0a1b2c3d4e5f.1", "orders", "orders")]
    roles = provisioner.postgres.query("SELECT rolname, rolcanlogin, rolsuper, rolcreaterole, rolcreatedb FROM pg_roles WHERE oid >= 16384")
    assert sorted(roles) == [("orders", False, False, False, False), ("orders@alpha.0a1b2c3d4e5f.1", True, False, False, False)]
    assert await module.logins() == ("orders@alpha.0a1b2c3d4e5f.1",)


async def test_made_again_it_is_the_same_with_the_secret_of_the_last_claim(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    first = await module.make(provisioner.claim())
    again = await module.make(provisioner.claim(secret="another one"))
    await module.check(again)
    assert "password authentication failed" in await provisioner.refusal(first)
    assert await module.logins() == (first.user,)


async def test_two_consumers_of_one_module_share_the_data_and_no_secret(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    one = await module.make(provisioner.claim())
    other = await module.make(provisioner.claim(login=OTHER, secret="of the other"))
    await provisioner.run(one, "CREATE TABLE shared (n integer)")
    await provisioner.run(other, "INSERT INTO shared VALUES (7)")
    await provisioner.run(other, "ALTER TABLE shared ADD COLUMN m integer")
    assert await provisioner.run(one, "SELECT n FROM shared") == [(7,)]
    assert "password authentication failed" in await provisioner.refusal(one, password="of the other")


async def test_another_module_is_refused_and_the_owner_named(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    await module.make(provisioner.claim())
    fault = await provisioner.fault(module.make(provisioner.claim(login=STRANGER)))
    assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.GRANTS, Kind.BLOCKED, "not-ours")
    assert "role 'orders' is there" in fault.cause.text
    assert "owner orders" in fault.cause.text
    assert await module.logins() == ("orders@alpha.0a1b2c3d4e5f.1",)


async def test_nobody_else_gets_into_the_database_or_at_the_ledger(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    stranger = await module.make(provisioner.claim("reports", STRANGER))
    assert 'permission denied for database "orders"' in await provisioner.refusal(stranger, dbname="orders")
    with pytest.raises(Exception, match="permission denied for schema mesh_ledger"):
        await provisioner.run(access, "SELECT * FROM mesh_ledger.grants", dbname="postgres")
    rights = "SELECT has_database_privilege('public', 'orders', right_) FROM unnest(ARRAY['CONNECT', 'TEMP', 'CREATE']) right_"
    assert provisioner.postgres.query(rights) == [(False,)] * 3
    schema = "SELECT has_schema_privilege('public', 'public', right_) FROM unnest(ARRAY['USAGE', 'CREATE']) right_"
    assert provisioner.postgres.query(schema, dbname="orders") == [(False,)] * 2


async def test_rights_that_others_were_given_are_taken_back_when_it_is_made_again(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    provisioner.postgres.query("GRANT CONNECT ON DATABASE orders TO PUBLIC")
    provisioner.postgres.query("ALTER ROLE orders LOGIN")
    provisioner.postgres.query(f'ALTER ROLE "{access.user}" CREATEDB SUPERUSER NOLOGIN')
    await module.make(provisioner.claim())
    assert provisioner.postgres.query("SELECT has_database_privilege('public', 'orders', 'CONNECT')") == [(False,)]
    seen = provisioner.postgres.query("SELECT rolname, rolcanlogin, rolcreatedb, rolsuper FROM pg_roles WHERE oid >= 16384 ORDER BY 1")
    assert seen == [("orders", False, False, False), (access.user, True, False, False)]


async def test_what_a_consumer_does_to_its_own_database_does_not_stop_the_next_grant(provisioner: "Provisioner") -> None:
    """It may comment on it, set what holds for all sessions in it, drop the schema that everybody expects."""
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    for statement in (
        "COMMENT ON DATABASE orders IS 'where the orders are'",
        "ALTER DATABASE orders SET role = 'pg_monitor'",
        "ALTER DATABASE orders SET search_path = 'nowhere'",
        "ALTER DATABASE orders SET default_transaction_read_only = on",
        "DROP SCHEMA public",
    ):
        await provisioner.run(access, statement, options="-c default_transaction_read_only=off")
    provisioner.postgres.query("ALTER DATABASE orders RESET default_transaction_read_only")
    other = await module.make(provisioner.claim(login=OTHER))
    await module.check(other)
    await module.retire(access.user)
    assert await module.logins() == (OTHER,)


async def test_check_refuses_a_session_that_is_not_the_owners(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    provisioner.postgres.query(f'ALTER ROLE "{access.user}" RESET role')
    fault = await provisioner.fault(module.check(access))
    assert (fault.cause.kind, fault.cause.code) == (Kind.BLOCKED, "other-role")
    provisioner.postgres.query(f'REVOKE orders FROM "{access.user}"')
    fault = await provisioner.fault(module.check(access))
    assert (fault.cause.kind, fault.cause.code) == (Kind.BLOCKED, "no-permission")


async def test_check_leaves_nothing_of_its_trial(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    before = provisioner.postgres.log_size
    await module.check(access)
    sent = [one.text for one in provisioner.postgres.statements(before) if one.user == access.user]
    assert any(text.startswith("INSERT") for text in sent)
    assert sent[-1] == "ROLLBACK"
    assert provisioner.postgres.query("SELECT FROM pg_namespace WHERE nspname ~ 'mesh-trial'", dbname="orders") == []


async def test_consumers_are_told_where_they_reach_the_server(provisioner: "Provisioner") -> None:
    module = provisioner.module(host="localhost", port=1)
    await module.prepare()
    access = await module.make(provisioner.claim())
    assert (access.host, access.port, access.sslmode) == ("localhost", 1, "disable")


async def test_the_marks_say_whose_everything_is(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    comments = provisioner.postgres.query("SELECT rolname, shobj_description(oid, 'pg_authid') FROM pg_roles WHERE oid >= 16384 ORDER BY 1")
    marks = {name: read_mark(comment) for name, comment in comments}
    owner, login = marks["orders"], marks[access.user]
    assert owner is not None
    assert login is not None
    assert (owner.kind, owner.issuer, owner.resource, owner.owner) == ("owner", "database@alpha", "database.1/orders", "orders")
    assert (login.kind, login.owner, login.consumer, login.sequence) == ("login", "orders", "orders@alpha", 1)
    assert login.ledger == owner.ledger


async def test_a_placement_that_moved_goes_on_with_what_is_there(provisioner: "Provisioner") -> None:
    await (await provisioner.prepared()).make(provisioner.claim())
    moved = provisioner.module("beta")
    await moved.prepare()
    await moved.check(await moved.make(provisioner.claim()))
    await moved.retire("orders@alpha.0a1b2c3d4e5f.1")
    assert await moved.logins() == ()
