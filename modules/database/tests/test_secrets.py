"""A secret that was handed in is in no statement, log, view, process list, comment or repr (K15)."""

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from mesh_runtime.testing.statements import Statements, Trouble

if TYPE_CHECKING:
    from conftest import Provisioner

PLANTED = "planted-5ecret'\"%41/@:ü"
#: Each form in which it could stand somewhere.
FORMS = (PLANTED, PLANTED.replace("'", "''"), "planted-5ecret")


def _processes() -> str:
    texts = []
    for file in [*Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ")]:
        try:
            texts.append(file.read_bytes().decode("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(texts)


async def test_the_secret_stands_nowhere_at_the_server(provisioner: "Provisioner", logs: list[logging.LogRecord]) -> None:
    module = await provisioner.prepared()
    before = provisioner.postgres.log_size
    seen: list[str] = []

    async def look() -> None:
        """While the statement that sets the password is held back: what runs, and what the last statement of each session was."""
        seen.append(str(provisioner.postgres.query("SELECT * FROM pg_stat_activity")))
        seen.append(_processes())

    async with Statements(provisioner.postgres.port) as statements:
        provisioner.through(statements.port)
        await module.make(provisioner.claim(secret=PLANTED))
        statements.expect()
        await module.make(provisioner.claim(login="orders@alpha.0a1b2c3d4e5f.2", secret=PLANTED))
        setting = next(at for at, text in enumerate(statements.seen) if "PASSWORD" in text)
        assert "SCRAM-SHA-256$" in statements.seen[setting]
        seen += statements.seen
        for sequence, kind in enumerate(("cut-after", "refuse"), 3):
            claim = provisioner.claim(login=f"orders@alpha.0a1b2c3d4e5f.{sequence}", secret=PLANTED)
            statements.expect(Trouble(setting, kind, act=look))  # type: ignore[arg-type]  # one of them
            fault = await provisioner.fault(module.make(claim))
            assert "PASSWORD" in statements.seen[setting]
            seen += [str(fault), repr(fault), repr(fault.__cause__), repr(claim)]
            provisioner.through(provisioner.postgres.port)
            access = await module.make(claim)
            seen += [repr(access), str(access)]
            await module.check(access)
            provisioner.through(statements.port)
    seen.append(provisioner.postgres.logged(before))
    seen.append(str(provisioner.postgres.query("SELECT * FROM pg_shdescription")))
    seen.append(str(provisioner.postgres.query("SELECT rolname, rolpassword FROM pg_authid")))
    seen += [record.getMessage() for record in logs]
    found = [text[:200] for text in seen for form in FORMS if form in text]
    assert not found
    assert len(seen) > 40


async def test_a_refused_login_of_the_consumer_shows_nothing(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    before = provisioner.postgres.log_size
    fault = await provisioner.fault(module.check(access.model_copy(update={"password": type(access.password)(PLANTED)})))
    assert fault.cause.code == "login-refused"
    assert not [form for form in FORMS if form in str(fault) + provisioner.postgres.logged(before)]


async def test_the_servers_own_password_is_masked_from_when_it_was_read(provisioner: "Provisioner") -> None:
    from mesh_runtime.logging import mask_text

    await provisioner.prepared()
    assert provisioner.postgres.password not in mask_text(f"x {provisioner.postgres.password} y")
    assert provisioner.postgres.password not in repr(provisioner.module().server.at())


async def test_a_consumer_reads_no_verifier_and_cannot_become_another(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    other = await module.make(provisioner.claim("reports", "reports@alpha.2c3d4e5f6071.1"))
    for statement in (
        "SELECT rolpassword FROM pg_authid",
        f'SET ROLE "{other.user}"',
        "SET ROLE reports",
        f"ALTER ROLE \"{other.user}\" PASSWORD 'mine'",
        "COMMENT ON ROLE orders IS 'mine'",
        "ALTER ROLE orders LOGIN",
        "CREATE ROLE another",
        "CREATE DATABASE another",
        "GRANT orders TO reports",
        f"COMMENT ON ROLE \"{access.user}\" IS 'mine'",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await provisioner.run(access, statement)
    await asyncio.gather(module.check(access), module.check(other))
