"""A server that is not up, full, read-only, silent or unwilling: its own words, and whether time mends it or somebody must act."""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from mesh_runtime.grants.ledger import Record
from mesh_runtime.startup import Kind, Stage, StageFault
from mesh_runtime.testing.postgres import PostgresOptions, PrivatePostgres
from mesh_runtime.testing.waiting import until
from mesh_runtime_database import PostgreSQL, connecting, ledger, linking

if TYPE_CHECKING:
    from conftest import Provisioner

Doing = Callable[[PostgreSQL], Awaitable[object]]


def everything(provisioner: "Provisioner") -> dict[Stage, list[Doing]]:
    """Each thing that the library calls, but for `check`, which takes another way."""
    record = Record(resource="database.1/orders", fields="{}", consumer="orders@alpha")
    return {
        Stage.PREPARE: [lambda module: module.prepare()],
        Stage.GRANTS: [
            lambda module: module.make(provisioner.claim()),
            lambda module: module.retire("orders@alpha.0a1b2c3d4e5f.1"),
            lambda module: module.logins(),
            lambda module: module.ledger().all(),
            lambda module: module.ledger().write(record),
        ],
    }


async def waits_for_a_lock(holding: psycopg.Connection[Any]) -> None:
    """Return once somebody waits for what this session holds. Nobody could log in to ask it while `pg_authid` is locked."""
    await until(lambda: holding.execute("SELECT FROM pg_locks WHERE NOT granted").rowcount, "it waits for the lock")


async def said(provisioner: "Provisioner", kind: Kind, code: str, words: str) -> None:
    """Whatever is done, this is what is said."""
    for stage, all_of_it in everything(provisioner).items():
        for doing in all_of_it:
            fault = await provisioner.fault(doing(provisioner.module()))
            assert (fault.stage, fault.cause.kind, fault.cause.code) == (stage, kind, code), fault.cause
            assert words in fault.cause.text
            assert provisioner.postgres.password not in str(fault)


async def test_nothing_listens_and_then_it_does(provisioner: "Provisioner") -> None:
    await asyncio.to_thread(provisioner.postgres.stop)
    await said(provisioner, Kind.WAITING, "refused", "Connection refused")
    await asyncio.to_thread(provisioner.postgres.start)
    module = await provisioner.prepared()
    await module.check(await module.make(provisioner.claim()))


async def test_it_is_killed_in_the_middle(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    with closing(psycopg.connect(**provisioner.postgres.superuser)) as holding:
        holding.execute("LOCK pg_authid IN ACCESS EXCLUSIVE MODE")
        making = asyncio.ensure_future(provisioner.fault(module.make(provisioner.claim())))
        await waits_for_a_lock(holding)
        provisioner.postgres.kill()
        fault = await making
    assert (fault.cause.kind, fault.cause.code) == (Kind.WAITING, "unreachable")
    assert "server closed the connection unexpectedly" in fault.cause.text


async def test_stopped_in_order_it_says_so(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    with closing(psycopg.connect(**provisioner.postgres.superuser)) as holding:
        holding.execute("LOCK mesh_ledger.grants")
        reading = asyncio.ensure_future(provisioner.fault(module.ledger().all()))
        await waits_for_a_lock(holding)
        provisioner.postgres.stop()
        fault = await reading
    assert (fault.cause.kind, fault.cause.code) == (Kind.WAITING, "shutting-down")
    assert "terminating connection due to administrator command (57P01)" in fault.cause.text


async def test_silent_before_or_in_the_middle_it_is_waited_for_within_a_limit(
    provisioner: "Provisioner", monkeypatch: pytest.MonkeyPatch
) -> None:
    module = await provisioner.prepared()
    monkeypatch.setattr(connecting, "LIMIT", 1.0)
    monkeypatch.setattr(linking, "CONNECT", 2.0)
    with closing(psycopg.connect(**provisioner.postgres.superuser)) as holding:
        holding.execute("LOCK mesh_ledger.grants")
        reading = asyncio.ensure_future(provisioner.fault(module.ledger().all()))
        await waits_for_a_lock(holding)
        provisioner.postgres.pause()
        began = time.monotonic()
        fault = await reading
        assert (fault.cause.kind, fault.cause.code) == (Kind.WAITING, "silent")
        fault = await provisioner.fault(module.logins())
        assert (fault.cause.kind, fault.cause.code) == (Kind.WAITING, "silent")
        monkeypatch.setattr(connecting, "LIMIT", 10.0)
        fault = await provisioner.fault(module.logins())
        assert (fault.cause.kind, fault.cause.code) == (Kind.WAITING, "time-out")
        assert time.monotonic() - began < 15
        provisioner.postgres.resume()
    assert await module.logins() == ()


async def test_told_to_stop_it_ends_at_once_though_the_server_is_silent(provisioner: "Provisioner") -> None:
    """
    Removal: modules/database/mesh_runtime_database/connecting.py: link.shutdown(socket.SHUT_RDWR)
    Assertion: assert took < 4.0
    """
    module = await provisioner.prepared()
    with closing(psycopg.connect(**provisioner.postgres.superuser)) as holding:
        holding.execute("LOCK mesh_ledger.grants")
        reading = asyncio.ensure_future(module.ledger().all())
        await waits_for_a_lock(holding)
        provisioner.postgres.pause()
        began = time.monotonic()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        ours = {task for task in asyncio.all_tasks() if task.get_name().startswith("work at")}
        if ours:
            await asyncio.wait(ours)
        took = time.monotonic() - began
        provisioner.postgres.resume()
        assert took < 4.0


async def test_too_many_are_logged_in(make_provisioner: "Callable[[PrivatePostgres], Provisioner]") -> None:
    small = PrivatePostgres(PostgresOptions({"max_connections": "4", "superuser_reserved_connections": "0", "max_wal_senders": "0"}))
    async with small:
        provisioner = make_provisioner(small)
        await provisioner.prepared()
        with ExitStack() as holding:

            def slot() -> Any:
                with suppress(psycopg.OperationalError):
                    return psycopg.connect(**small.superuser)

            for _ in range(3):
                holding.enter_context(closing(await until(slot, "a slot")))
            with closing(await until(slot, "the last slot")):
                await said(provisioner, Kind.WAITING, "too-many-connections", "sorry, too many clients already")

            async def served() -> bool:
                with suppress(StageFault):
                    await provisioner.prepared()
                    return True
                return False

            await until(served, "the server lets go of the slot, a moment after its client has left")


async def act(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
async def test_its_disk_is_full(make_provisioner: "Callable[[PrivatePostgres], Provisioner]") -> None:
    disk = Path(tempfile.mkdtemp(prefix="mesh-disk-"))
    await act("mount", "-t", "tmpfs", "-o", "size=150m,mode=0755", "tmpfs", str(disk))
    try:
        settings = {"max_wal_size": "32MB", "min_wal_size": "32MB"}
        async with PrivatePostgres(PostgresOptions(settings, directory=disk)) as small:
            provisioner = make_provisioner(small)
            module = await provisioner.prepared()
            filler = small.directory / "filler"
            with filler.open("wb") as file, pytest.raises(OSError, match="No space left"):  # noqa: PT012 - it is the last write that fails
                while True:
                    file.write(b"\0" * 65536)
                    file.flush()
            fault = await provisioner.fault(module.make(provisioner.claim()))
            assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.GRANTS, Kind.WAITING, "disk-full")
            assert "No space left on device" in fault.cause.text
            filler.unlink()
            await module.check(await module.make(provisioner.claim()))
    finally:
        await act("umount", "-l", str(disk))
        await act("rmdir", str(disk))


async def test_it_is_read_only(provisioner: "Provisioner") -> None:
    module = await provisioner.prepared()
    provisioner.postgres.query("ALTER SYSTEM SET default_transaction_read_only = on")
    provisioner.postgres.query("SELECT pg_reload_conf()")
    for stage, doings in everything(provisioner).items():
        for doing in (doings[0], *doings[4:]):  # those that write; a login that is not there is retired without
            fault = await provisioner.fault(doing(module))
            assert (fault.stage, fault.cause.kind, fault.cause.code) == (stage, Kind.BLOCKED, "read-only")
            assert "in a read-only transaction (25006)" in fault.cause.text


async def test_the_login_is_refused(provisioner: "Provisioner") -> None:
    provisioner.postgres.write_server(provisioner.files, password="another")
    await said(provisioner, Kind.BLOCKED, "login-refused", 'password authentication failed for user "postgres"')
    provisioner.postgres.query("CREATE ROLE weak PASSWORD 'weak'")
    provisioner.postgres.write_server(provisioner.files, user="weak", password="weak")
    await said(provisioner, Kind.BLOCKED, "login-refused", 'role "weak" is not permitted to log in')


async def test_the_login_has_not_the_rights(provisioner: "Provisioner") -> None:
    provisioner.postgres.query("CREATE ROLE weak LOGIN CREATEROLE PASSWORD 'weak'")
    provisioner.postgres.write_server(provisioner.files, user="weak", password="weak")
    fault = await provisioner.fault(provisioner.module().prepare())
    assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.PREPARE, Kind.BLOCKED, "no-permission")
    assert "weak must be a superuser, or have CREATEROLE, CREATEDB and INHERIT" in fault.cause.text
    provisioner.postgres.query("ALTER ROLE weak CREATEDB")
    fault = await provisioner.fault(provisioner.module().prepare())
    assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.PREPARE, Kind.BLOCKED, "no-permission")
    assert "permission denied for database postgres (42501)" in fault.cause.text


async def test_there_is_no_such_database(provisioner: "Provisioner") -> None:
    provisioner.postgres.write_server(provisioner.files, dbname="nowhere")
    await said(provisioner, Kind.BLOCKED, "no-database", 'database "nowhere" does not exist')


async def test_it_speaks_no_tls(provisioner: "Provisioner") -> None:
    provisioner.postgres.write_server(provisioner.files, sslmode="require")
    await said(provisioner, Kind.BLOCKED, "tls-refused", "server does not support SSL, but SSL was required")


async def test_it_is_too_old(provisioner: "Provisioner", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "OLDEST", 990000)
    fault = await provisioner.fault(provisioner.module().prepare())
    assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.PREPARE, Kind.BLOCKED, "too-old")
    assert "it must be 99 or newer" in fault.cause.text


async def test_no_name_is_resolved_for_it(provisioner: "Provisioner") -> None:
    provisioner.postgres.write_server(provisioner.files, host="no.such.host.invalid")
    fault = await provisioner.fault(provisioner.module().prepare())
    assert (fault.cause.kind, fault.cause.code) == (Kind.WAITING, "unreachable")
    assert "no.such.host.invalid" in fault.cause.text


async def test_a_name_and_a_socket_lead_to_it_too(provisioner: "Provisioner") -> None:
    for host in ("localhost", str(provisioner.postgres.sockets)):
        provisioner.postgres.write_server(provisioner.files, host=host)
        module = await provisioner.prepared()
        await module.check(await module.make(provisioner.claim()))


async def test_its_files_may_come_later_or_be_wrong(provisioner: "Provisioner") -> None:
    module, password = provisioner.module(), provisioner.files / "password"
    password.unlink()
    fault = await provisioner.fault(module.prepare())
    assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.PREPARE, Kind.WAITING, "not-there-yet")
    assert str(password) in fault.cause.text
    for name, wrong, words in (
        ("port", "54x", "a port is 1 to 65535"),
        ("sslmode", "maybe", "must be one of disable"),
        ("host", "a\0b", "holds a NUL"),
        ("user", "\n", "is empty"),
        ("password", "\udcff", "is not UTF-8"),
    ):
        provisioner.postgres.write_server(provisioner.files)
        (provisioner.files / name).write_bytes(wrong.encode("utf-8", "surrogateescape"))
        fault = await provisioner.fault(module.prepare())
        assert (fault.cause.kind, fault.cause.code) == (Kind.BLOCKED, "server-files")
        assert f"{provisioner.files / name} " in fault.cause.text
        assert words in fault.cause.text
    provisioner.postgres.write_server(provisioner.files, sslmode="verify-full")
    fault = await provisioner.fault(module.prepare())
    assert (fault.cause.code, "ca.pem is not there yet" in fault.cause.text) == ("not-there-yet", True)
    for name in ("port", "sslmode", "dbname"):
        (provisioner.files / name).unlink()
    assert (module.server.at().port, module.server.at().sslmode, module.server.at().dbname) == (5432, "prefer", "postgres")
    provisioner.postgres.write_server(provisioner.files)
    await module.prepare()
