"""Nothing is taken over: what is there without our mark, or with another's, is refused, named, and left as it is (B60, K13)."""

from typing import TYPE_CHECKING

import pytest

from mesh_runtime.startup import Kind
from mesh_runtime_database.marks import Mark

if TYPE_CHECKING:
    from conftest import Provisioner

OF_ANOTHER = Mark(
    kind="owner", ledger="f" * 32, issuer="database@elsewhere", resource="database.1/orders", database="orders", owner="orders"
)

#: What is there, and what the refusal names.
FOREIGN = {
    "a role without a comment": (["CREATE ROLE orders"], "the role 'orders'"),
    "a role that can log in": (["CREATE ROLE orders LOGIN PASSWORD 'theirs'"], "the role 'orders'"),
    "a role with a comment of its own": (["CREATE ROLE orders", "COMMENT ON ROLE orders IS 'the shop'"], "the role 'orders'"),
    "a role of another mesh": (["CREATE ROLE orders", f"COMMENT ON ROLE orders IS '{OF_ANOTHER.text()}'"], "the role 'orders'"),
    "a database of somebody else": (["CREATE DATABASE orders"], "the database 'orders'"),
    "a role with the login's name": (['CREATE ROLE "orders@alpha.0a1b2c3d4e5f.1"'], "the role 'orders@alpha.0a1b2c3d4e5f.1'"),
}


@pytest.mark.parametrize("what", FOREIGN)
async def test_b60_what_is_somebody_elses_is_refused_and_left_alone(provisioner: "Provisioner", what: str) -> None:
    made, names = FOREIGN[what]
    module = await provisioner.prepared()
    for statement in made:
        provisioner.postgres.query(statement)
    looks = (
        "SELECT rolname, rolcanlogin, rolpassword, shobj_description(oid, 'pg_authid') FROM pg_authid WHERE rolname ~ 'orders' ORDER BY 1"
    )
    before = provisioner.postgres.query(looks)
    databases = provisioner.postgres.query("SELECT datname, datdba, datacl::text FROM pg_database ORDER BY 1")
    fault = await provisioner.fault(module.make(provisioner.claim()))
    assert (fault.cause.kind, fault.cause.code) == (Kind.BLOCKED, "not-ours")
    assert names in fault.cause.text
    assert "left alone" in fault.cause.text
    after = provisioner.postgres.query(looks)
    assert after == before if "login's" not in what else set(before) < set(after)
    if "database" in what:
        assert provisioner.postgres.query("SELECT datname, datdba, datacl::text FROM pg_database ORDER BY 1") == databases
    assert await module.logins() == ()


async def test_b60_a_login_of_ours_for_another_grant_is_refused(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    for changed in ({"consumer": "orders@beta"}, {"sequence": 2}, {"resource": provisioner.claim("other").resource}):
        fault = await provisioner.fault(module.make(provisioner.claim()._replace(**changed)))
        assert fault.cause.code == "not-ours"
        assert access.user in fault.cause.text
    await module.check(access)


async def test_retiring_leaves_alone_what_is_not_a_login_of_ours(provisioner: "Provisioner") -> None:
    """
    Removal: modules/database/mesh_runtime_database/logins.py: raise not_ours("login", login, role.mark)
    Assertion: assert refused == ["not-ours"] * 4
    """
    module = await provisioner.prepared()
    await module.make(provisioner.claim())
    provisioner.postgres.query("CREATE ROLE theirs LOGIN")
    provisioner.postgres.query("CREATE ROLE elsewhere LOGIN")
    provisioner.postgres.query(f"COMMENT ON ROLE elsewhere IS '{OF_ANOTHER.model_copy(update={'kind': 'login'}).text()}'")
    refused = []
    for name in ("theirs", "elsewhere", "orders", "postgres"):
        try:
            await module.retire(name)
        except Exception as error:  # noqa: BLE001 - whatever it is
            refused.append(getattr(getattr(error, "cause", None), "code", repr(error)))
    assert refused == ["not-ours"] * 4
    left = provisioner.postgres.query("SELECT rolname FROM pg_roles WHERE rolname IN ('theirs', 'elsewhere') AND rolcanlogin")
    assert len(left) == 2
    assert await module.logins() == ("orders@alpha.0a1b2c3d4e5f.1",)


async def test_a_schema_of_the_ledgers_name_is_left_alone(provisioner: "Provisioner") -> None:
    provisioner.postgres.query("CREATE SCHEMA mesh_ledger")
    fault = await provisioner.fault(provisioner.module().prepare())
    assert (fault.cause.kind, fault.cause.code) == (Kind.BLOCKED, "not-ours")
    assert provisioner.postgres.query("SELECT 1 FROM pg_tables WHERE schemaname = 'mesh_ledger'") == []


async def test_two_meshes_on_one_server_do_not_touch_each_other(provisioner: "Provisioner") -> None:
    ours = await provisioner.prepared()
    await ours.make(provisioner.claim())
    provisioner.postgres.query("CREATE DATABASE elsewhere")
    provisioner.postgres.write_server(provisioner.files, dbname="elsewhere")
    theirs = await provisioner.prepared()
    assert await theirs.logins() == ()
    for doing in (theirs.make(provisioner.claim()), theirs.retire("orders@alpha.0a1b2c3d4e5f.1")):
        fault = await provisioner.fault(doing)
        assert fault.cause.code == "not-ours"
