"""The private PostgreSQL starts quickly, wants a password, fails in every way that is asked of it, and leaves nothing behind."""

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import psycopg
import pytest

from mesh_runtime.testing import postgres as kit
from mesh_runtime.testing.postgres import NoPostgres, PostgresFailed, PostgresOptions, PrivatePostgres
from mesh_runtime.testing.statements import Statements, Trouble
from mesh_runtime.testing.waiting import until

OWNER = """
    import sys
    from mesh_runtime.testing.postgres import PrivatePostgres
    postgres = PrivatePostgres()
    postgres.start()
    print(*postgres.pids, postgres.directory, flush=True)
    sys.stdin.read()
"""


def test_nobody_logs_in_without_the_password(postgres: PrivatePostgres) -> None:
    for host in ("127.0.0.1", str(postgres.sockets)):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(**postgres.superuser | {"host": host, "password": "another"})


def test_the_next_test_finds_it_empty(postgres: PrivatePostgres) -> None:
    postgres.query("ALTER SYSTEM SET work_mem = '1MB'")
    postgres.query("CREATE ROLE owner")
    postgres.query('CREATE DATABASE "a-base" OWNER owner')
    postgres.query("CREATE SCHEMA kept")
    postgres.clean()
    assert postgres.query("SELECT datname FROM pg_database ORDER BY 1") == [("postgres",), ("template0",), ("template1",)]
    assert postgres.query("SELECT rolname FROM pg_roles WHERE rolname !~ '^pg_'") == [("postgres",)]
    assert postgres.query("SELECT FROM pg_namespace WHERE nspname = 'kept'") == []
    assert postgres.query("SHOW work_mem") == [("4MB",)]


def test_it_tells_every_statement_but_its_own(postgres: PrivatePostgres) -> None:
    before = postgres.log_size
    postgres.query("SELECT 'its own'")
    with psycopg.connect(**postgres.superuser, autocommit=True) as connection:
        connection.execute("SELECT 1\n  + 1")
        connection.execute("SELECT %s", ("x",))
    assert [(one.user, one.database, one.text) for one in postgres.statements(before)] == [
        ("postgres", "postgres", "SELECT 1\n  + 1"),
        ("postgres", "postgres", "SELECT $1"),
    ]


def test_data_and_port_outlive_every_end(postgres: PrivatePostgres) -> None:
    postgres.query("CREATE TABLE kept (n integer)")
    port = postgres.port
    for number, end in enumerate((postgres.stop, lambda: postgres.stop("immediate"), postgres.kill)):
        postgres.query("INSERT INTO kept VALUES (%s)", number)
        end()
        assert not postgres.running
        with pytest.raises(psycopg.OperationalError, match="refused"):
            postgres.query("SELECT 1")
        postgres.start()
    assert postgres.query("SELECT n FROM kept ORDER BY n") == [(0,), (1,), (2,)]
    assert postgres.port == port


def test_paused_it_accepts_and_says_nothing(postgres: PrivatePostgres) -> None:
    with psycopg.connect(**postgres.superuser) as connection:
        postgres.pause()
        with socket.create_connection(("127.0.0.1", postgres.port), timeout=1) as silent:
            silent.sendall(struct.pack("!II", 8, 80877103))  # SSLRequest, which a server answers at once
            with pytest.raises(TimeoutError):
                silent.recv(1)
        assert all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in (postgres.pids[1], connection.info.backend_pid))
        postgres.resume()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_setting_holds_until_the_next_start(own_postgres: PrivatePostgres) -> None:
    own_postgres.start({"work_mem": "2MB"})
    assert own_postgres.query("SHOW work_mem") == [("2MB",)]
    assert own_postgres.query("SHOW fsync") == [("on",)]
    own_postgres.stop()
    own_postgres.start()
    assert own_postgres.query("SHOW work_mem") == [("4MB",)]


def test_a_server_that_cannot_start_says_why() -> None:
    postgres = PrivatePostgres(PostgresOptions({"shared_buffers": "none"}))
    try:
        with pytest.raises(PostgresFailed, match="shared_buffers"):
            postgres.start()
    finally:
        postgres.dispose()
    assert not postgres.directory.exists()


def test_without_a_server_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "VERSIONS", tmp_path)
    with pytest.raises(NoPostgres, match="install Debian's package postgresql"):
        PrivatePostgres()


async def test_its_owners_death_is_its_end() -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(OWNER), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    *pids, directory = (await owner.stdout.readline()).split()
    assert all(psutil.pid_exists(int(pid)) for pid in pids)
    os.kill(owner.pid, signal.SIGKILL)
    await owner.wait()
    await until(lambda: not any(psutil.pid_exists(int(pid)) for pid in pids), "its processes have ended", within=10.0)
    await until(lambda: not Path(directory.decode()).exists(), "its directory is gone", within=10.0)


async def test_trouble_at_one_statement(postgres: PrivatePostgres) -> None:
    postgres.query("CREATE TABLE kept (n integer)")

    async def two() -> None:
        fields = postgres.superuser | {"port": statements.port, "sslmode": "prefer"}
        connection = await psycopg.AsyncConnection.connect(**fields, autocommit=True)
        try:
            await connection.execute("INSERT INTO kept VALUES (1)")
            await connection.execute("INSERT INTO kept VALUES (%s)", (2,))
        finally:
            await connection.close()

    async def kept() -> list[int]:
        rows = await asyncio.to_thread(postgres.query, "DELETE FROM kept RETURNING n")
        return [row[0] for row in rows]

    async with Statements(postgres.port) as statements:
        await two()
        assert statements.seen == ["INSERT INTO kept VALUES (1)", "INSERT INTO kept VALUES ($1)"]
        assert await kept() == [1, 2]
        for at, before, after in ((0, [], [1]), (1, [1], [1, 2])):
            statements.expect(Trouble(at, "cut-before"))
            with pytest.raises(psycopg.OperationalError):
                await two()
            assert await kept() == before
            statements.expect(Trouble(at, "cut-after"))
            with pytest.raises(psycopg.OperationalError):
                await two()
            assert await kept() == after
            statements.expect(Trouble(at, "refuse", "53100", "no space left"))
            with pytest.raises(psycopg.errors.DiskFull, match="no space left"):
                await two()
            assert await kept() == before
            assert statements.happened
