"""A private PostgreSQL for tests and beds: own directory, free port, passwords always, and every way in which a server can fail.

It starts in a second, keeps port and data over stop and start, and leaves no process behind: not when the test run ends, nor when that is
killed. It logs every statement, so that a test can say what was sent and what was not. It never touches another cluster of this machine.

PostgreSQL refuses to run as root: root's private servers run as the user `postgres`, or `nobody`, in a directory that belongs to it.

All methods block, and each is bounded; in a coroutine use `await asyncio.to_thread(postgres.stop)`, or `async with`.
"""

import contextlib
import os
import pwd
import re
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

from mesh_runtime.testing.ports import free_port
from mesh_runtime.testing.supervised import ServerFailed, Supervised

VERSIONS = Path("/usr/lib/postgresql")
"""Where Debian's packages keep the servers' programs, one directory a version."""

START_LIMIT, STOP_LIMIT, CONTROL_LIMIT = 60.0, 30.0, 30.0
"""Seconds: far above what a loaded machine was seen to need (1 to 3 s for a start, the first included)."""

SUPERUSER = "postgres"
_OWN = "mesh-test"

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "60",
    "shared_buffers": "16MB",
    # DROP DATABASE waits for whoever has connected and has not logged in yet: clients that gave up on a paused server.
    "authentication_timeout": "2s",
    "log_statement": "all",
    "log_line_prefix": "%m [%p] %u@%d/%a ",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
#: Without these a crash of the machine can lose what was committed; the end of the processes, however sudden, cannot.
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}
_PREFIX = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \w+ \[\d+\] (?P<user>\S*)@(?P<database>[^/@]*)/(?P<application>.*?) (?P<words>[A-Z]+:  .*)",
    re.DOTALL,
)
_STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:]*): (?P<text>.*)", re.DOTALL)


class NoPostgres(Exception):
    """There is no PostgreSQL server on this machine. The message names what to install."""


class PostgresFailed(ServerFailed):
    """The server did not do what it was told. The message carries the end of its log."""


def programs() -> Path:
    """The directory of the newest server's programs. Raises NoPostgres."""
    found = sorted((float(path.parent.parent.name), path.parent) for path in VERSIONS.glob("*/bin/initdb"))
    if not found:
        raise NoPostgres(f"no PostgreSQL server in {VERSIONS}: install Debian's package postgresql")
    return found[-1][1]


@dataclass(frozen=True)
class PostgresOptions:
    """What a private server is made of."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of postgresql.conf, for example `{"max_connections": "5"}`."""
    durable: bool = False
    """Whether what is committed is on the disk (`fsync`): for tests that cut. The end of its processes loses nothing either way."""
    directory: Path | None = None
    """Under which directory it has its own; default: the system's for what is temporary."""


@dataclass(frozen=True)
class Statement:
    """One statement that the server was sent, as it logged it."""

    user: str
    database: str
    text: str


class PrivatePostgres(Supervised):
    """One PostgreSQL on a port of its own, known from the start: clients can dial it before there is anything."""

    what = "the server"
    failed = PostgresFailed
    stop_limit = STOP_LIMIT

    def __init__(self, options: PostgresOptions | None = None) -> None:
        """Lay out its directory; nothing runs before `start`. Raises NoPostgres."""
        self.options = options or PostgresOptions()
        self._programs = programs()
        super().__init__(Path(tempfile.mkdtemp(prefix="mesh-postgres-", dir=self.options.directory)))
        self.port = free_port()
        self.password = secrets.token_urlsafe(18)
        self.log = self.directory / "server.log"
        self.log.touch()
        self.sockets = self.directory / "sockets"
        self._data = self.directory / "data"
        self._owner = _unprivileged()
        for path in (self.sockets, self._data):
            path.mkdir(mode=0o700)
            self._give(path)
        self._give(self.directory)

    @property
    def superuser(self) -> dict[str, Any]:
        """How to log in as its superuser, in libpq's fields."""
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "user": SUPERUSER,
            "password": self.password,
            "dbname": "postgres",
            "sslmode": "disable",
        }

    def version(self) -> int:
        """The server's major version."""
        return int(self._programs.parent.name)

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Start it, and return once its superuser has logged in. `settings` hold until its next start.

        Raises PostgresFailed with the end of its log if it ends or takes more than a minute.
        """
        if self.running:
            raise PostgresFailed("it runs already")
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        self._launch([self._program(settings or {})])
        try:
            self._wait_until_it_answers()
        except PostgresFailed:
            self.kill()
            raise

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop it: in order (sessions are ended with a reason), or at once, as it does itself when something is badly wrong."""
        self.resume()
        self._signal(signal.SIGINT if mode == "fast" else signal.SIGQUIT)
        self._end()

    def pause(self) -> None:
        """Freeze every process of it (SIGSTOP): its sockets stay open and silent, and the kernel still accepts new ones."""
        self._freeze()
        self._freeze(self._sessions())

    def resume(self) -> None:
        """Let a paused server go on."""
        self._signal(signal.SIGCONT, self._sessions())
        self._signal(signal.SIGCONT)

    def write_server(self, directory: Path, **changes: str) -> Path:
        """Write how to log in as files, one a field, as `MESH_DATABASE_SERVER` wants them; returns the directory."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, value in (self.superuser | changes).items():
            (directory / name).write_text(str(value))
        return directory

    def query(self, text: str, *values: object, dbname: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as superuser, outside of any transaction, and return its rows."""
        with self._session(dbname) as run:
            return run(text, *values)

    def clean(self) -> None:
        """Make it as new, whatever was made in it: its settings, databases and roles. Its superuser and password stay."""
        with self._session("template1") as run:
            run("ALTER SYSTEM RESET ALL")
            run("SELECT pg_reload_conf()")
        with self._session("template1") as run:  # a session that is there already may not have read it yet
            for (name,) in run("SELECT quote_ident(datname) FROM pg_database WHERE datname NOT IN ('template0', 'template1')"):
                run(f"DROP DATABASE {name} WITH (FORCE)")
            # All at once: from 16 on, who granted a membership is not dropped before it.
            if roles := run("SELECT quote_ident(rolname) FROM pg_roles WHERE oid >= 16384"):
                run(f"DROP ROLE {', '.join(name for (name,) in roles)}")
            run("CREATE DATABASE postgres TEMPLATE template0")

    @contextlib.contextmanager
    def _session(self, dbname: str) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
        import psycopg  # not at the top: a run without a database pays nothing for it
        from psycopg.pq import ExecStatus

        fields = self.superuser | {"dbname": dbname, "connect_timeout": 10, "gssencmode": "disable"}
        with psycopg.connect(**fields, autocommit=True, application_name=_OWN) as connection:

            def run(text: str, *values: object) -> list[tuple[Any, ...]]:
                cursor = connection.execute(text.encode(), values or None)
                gave_rows = cursor.pgresult is not None and cursor.pgresult.status == ExecStatus.TUPLES_OK
                return cursor.fetchall() if gave_rows else []

            yield run

    def logged(self, since: int = 0) -> str:
        """All that it logged, from an offset on (`len` of what it had logged before, in bytes: `log_size`)."""
        with self.log.open("rb") as log:
            log.seek(since)
            return log.read().decode("utf-8", "replace")

    @property
    def log_size(self) -> int:
        """How many bytes it has logged so far."""
        return self.log.stat().st_size

    def statements(self, since: int = 0) -> list[Statement]:
        """Every statement that it was sent, in order, from an offset of its log on. Without those of `query`."""
        records: list[str] = []
        for line in self.logged(since).splitlines():
            if _PREFIX.match(line):
                records.append(line)
            elif records:
                records[-1] += f"\n{line.removeprefix(chr(9))}"
        found = []
        for record in records:
            prefix = _PREFIX.match(record)
            if prefix and prefix["application"] != _OWN and (said := _STATEMENT.match(prefix["words"])):
                found.append(Statement(prefix["user"], prefix["database"], said["text"]))
        return found

    # ------------------------------------------------------------------------------------------------ beneath

    def _give(self, path: Path) -> None:
        if self._owner is not None:
            os.chown(path, self._owner.pw_uid, self._owner.pw_gid)

    def _command(self, program: str, *options: str) -> list[str]:
        argv = [str(self._programs / program), *options]
        if self._owner is None:
            return argv
        # What becomes another user forgets the signal by which it ends with its parent; setpriv sets it again.
        become = [f"--reuid={self._owner.pw_uid}", f"--regid={self._owner.pw_gid}", "--clear-groups", "--pdeathsig=keep", "--"]
        return ["setpriv", *become, *argv]

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "HOME": str(self.directory)}

    def _initialise(self) -> None:
        secret = self.directory / "password"
        secret.touch(mode=0o600)
        secret.write_text(self.password)
        self._give(secret)
        options = [f"--username={SUPERUSER}", f"--pwfile={secret}", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"]
        if not self.options.durable:
            options.append("--no-sync")
        argv = self._command("initdb", f"--pgdata={self._data}", *options)
        done = subprocess.run(
            argv, env=self._environment(), cwd=self.directory, capture_output=True, text=True, timeout=START_LIMIT, check=False
        )
        secret.unlink()
        if done.returncode != 0:
            raise PostgresFailed(f"initdb: {done.stdout}{done.stderr}")

    def _program(self, settings: Mapping[str, str]) -> dict[str, Any]:
        own = {"port": str(self.port), "unix_socket_directories": str(self.sockets)}
        chosen = _SETTINGS | ({} if self.options.durable else _NOT_DURABLE) | dict(self.options.settings) | dict(settings) | own
        options = [option for name, value in chosen.items() for option in ("-c", f"{name}={value}")]
        return {
            "name": "server",
            "argv": self._command("postgres", "-D", str(self._data), *options),
            "env": self._environment(),
            "log": str(self.log),
        }

    def _wait_until_it_answers(self) -> None:
        import psycopg

        deadline = time.monotonic() + START_LIMIT
        while True:
            try:
                self.query("SELECT 1")
            except psycopg.OperationalError as error:
                if not self.running:
                    raise PostgresFailed(f"the server ended before it could answer\n{self._last_words()}") from None
                if time.monotonic() > deadline:
                    raise PostgresFailed(f"the server did not answer within {START_LIMIT:g} s: {error}\n{self._last_words()}") from None
                time.sleep(0.03)
            else:
                return

    def _last_words(self) -> str:
        return "\n".join(self.logged().splitlines()[-20:])

    def _sessions(self) -> list[int]:
        with contextlib.suppress(psutil.Error):
            return [process.pid for server in self.pids[1:] for process in psutil.Process(server).children(recursive=True)]
        return []


def _unprivileged() -> pwd.struct_passwd | None:
    """Whom a server runs as: this user (None), or for root one without rights."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoPostgres("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody")
