"""B62: a name is created exactly as it is written, or refused before any statement is made of it."""

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mesh_runtime.contracts.database import Database
from mesh_runtime.startup import StageFault
from mesh_runtime_database.names import check_database, check_login

if TYPE_CHECKING:
    from conftest import Provisioner

LONGEST = "l" * 63
GOOD = ("app-1", "select", "a", "0", "user", "current-user", "template2", LONGEST)
BAD = (
    *("App", 'a"b', "x; DROP ROLE y; --", "é", "n" * 64, "", "pg_x", "pg-x", "../x", "a\0b", "a\nb", "a\n", " a", "a b", "a_b", "-a", "a-"),
    *("public", "none", "%s", "{}", "\uff41"),
)
BAD_LOGINS = tuple(name for name in BAD if name != "a_b")


async def test_b62_a_good_name_is_created_as_it_is_written(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    for name in GOOD:
        login = f"{name[:40]}@alpha.0a1b2c3d4e5f.1"
        access = await module.make(provisioner.claim(name, login))
        await module.check(access)
        made = provisioner.postgres.query("SELECT rolname FROM pg_roles WHERE rolname IN (%s, %s) ORDER BY rolcanlogin", name, login)
        assert made == [(name,), (login,)]
        assert provisioner.postgres.query("SELECT datname FROM pg_database WHERE datname = %s", name) == [(name,)]
        assert await provisioner.run(access, "SELECT current_user, current_database()") == [(name, name)]
    roles = provisioner.postgres.query("SELECT FROM pg_roles WHERE oid >= 16384")
    assert len(roles) == 2 * len(GOOD)


async def test_b62_a_bad_name_of_a_database_is_refused_before_any_statement(provisioner: "Provisioner") -> None:
    """
    Removal: modules/database/mesh_runtime_database/names.py: raise _bad("a database's name", name, _DATABASE)
    Assertion: assert refused
    """
    module, before = await provisioner.prepared(), provisioner.postgres.log_size
    for name in BAD:
        claim, refused = provisioner.claim()._replace(resource=Database.model_construct(name=name)), ""
        try:
            await module.make(claim)
        except StageFault as fault:
            refused = fault.cause.text if fault.cause.code == "bad-name" else ""
        assert refused
        assert repr(name) in refused
    assert provisioner.postgres.statements(before) == []


async def test_b62_a_bad_name_of_a_login_is_refused_before_any_statement(provisioner: "Provisioner") -> None:
    module, before = await provisioner.prepared(), provisioner.postgres.log_size
    for name in BAD_LOGINS:
        for doing in (module.make(provisioner.claim()._replace(login=name)), module.retire(name)):
            fault = await provisioner.fault(doing)
            assert fault.cause.code == "bad-name"
            assert repr(name) in fault.cause.text
    assert provisioner.postgres.statements(before) == []


@pytest.mark.parametrize("name", BAD)
def test_b62_a_bad_name_of_a_database_cannot_even_be_asked_for(name: str) -> None:
    with pytest.raises(ValidationError):
        Database(name=name)


@given(st.one_of(st.text(max_size=70), st.from_regex(r"[a-zA-Z0-9@._-]{0,70}")))
@settings(max_examples=300, deadline=None)
def test_b62_no_accepted_name_is_folded_or_truncated(name: str) -> None:
    """PostgreSQL lower-cases an identifier that is not quoted, and truncates any after 63 bytes: neither changes these."""
    for check in (check_database, check_login):
        try:
            accepted = check(name)
        except StageFault:
            continue
        assert accepted == name == name.lower()
        assert name.isascii()
        assert 0 < len(name.encode()) <= 63
