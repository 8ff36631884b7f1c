"""The embedded ledger: a SQLite file, for a provisioner whose effect lives on its own machine.

It promises that a record is on disk when ``write`` returns, and whole or not there after a loss of power. It refuses a file that is damaged
or another program's, naming it: to begin a new ledger beside logins that exist would make all of them orphans.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from mesh_runtime.grants.ledger import Moved, Record
from mesh_runtime.startup import Stage, StageFault, blocked, waiting

#: Marks a file as a ledger. Source: SQLite documentation, *Database File Format*, 1.3.17 *Application ID*. It reads ``MGrl``.
APPLICATION = 0x4D47726C
#: Seconds to wait for another process that writes.
BUSY = 5.0
#: SQLite's codes for a file that cannot be read as one. Source: SQLite documentation, *Result and Error Codes*.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)

# With the rollback journal, which is SQLite's own choice, and not WAL: at rest all of it is one file that can be copied, and a commit is as
# durable. Source: *PRAGMA Statements*, synchronous.
_DURABLE = "PRAGMA synchronous = EXTRA"
_TABLE = """
CREATE TABLE record (resource TEXT NOT NULL, consumer TEXT NOT NULL, version INTEGER NOT NULL, body TEXT NOT NULL,
                     PRIMARY KEY (resource, consumer)) STRICT
"""

T = TypeVar("T")


class SqliteLedger:
    """A ledger in ``file``, made with mode 0600 at the first use; its directory must be there.

    Each call has a connection of its own in a thread of the loop's executor, so there is nothing to close. What SQLite raises comes as a
    stage's fault: ``blocked`` for a file that is damaged or no ledger, ``waiting`` for everything else (a full disk, a lock).
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    async def read(self, resource: str, consumer: str) -> Record | None:
        """The record of this grant, or None: there never was one."""

        def work(database: sqlite3.Connection) -> Record | None:
            found = database.execute(
                "SELECT body, version FROM record WHERE resource = ? AND consumer = ?", (resource, consumer)
            ).fetchone()
            return None if found is None else self._record(*found)

        return await self._call(work)

    async def all(self) -> tuple[Record, ...]:
        """Every record."""

        def work(database: sqlite3.Connection) -> tuple[Record, ...]:
            rows = database.execute("SELECT body, version FROM record ORDER BY resource, consumer").fetchall()
            return tuple(self._record(*row) for row in rows)

        return await self._call(work)

    async def write(self, record: Record) -> Record:
        """Store ``record`` if the stored one has its version; durable on return. Raises Moved."""
        written = record.model_copy(update={"version": record.version + 1})
        values = (written.version, written.model_dump_json(), record.resource, record.consumer)

        def work(database: sqlite3.Connection) -> Record:
            if record.version == 0:
                statement, given = "INSERT OR IGNORE INTO record (version, body, resource, consumer) VALUES (?, ?, ?, ?)", values
                changed = database.execute(statement, given).rowcount
            else:
                statement = "UPDATE record SET version = ?, body = ? WHERE resource = ? AND consumer = ? AND version = ?"
                changed = database.execute(statement, (*values, record.version)).rowcount
            if changed != 1:
                raise Moved(f"the record of {record.resource} for {record.consumer} is not of version {record.version}")
            return written

        return await self._call(work)

    async def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.to_thread(self._within_transaction, work)

    def _within_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with closing(self._opened()) as database:
                database.execute("BEGIN IMMEDIATE")
                self._prepare(database)
                result = work(database)
                database.execute("COMMIT")
                return result
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _DAMAGED:
                raise self._no_ledger(f"it is damaged: {error}") from error
            raise waiting(Stage.GRANTS, "ledger-unavailable", f"the ledger {self._file}: {error}") from error
        except OSError as error:
            raise waiting(Stage.GRANTS, "ledger-unavailable", f"the ledger {self._file}: {error.strerror}") from error

    def _opened(self) -> sqlite3.Connection:
        # Made here and not by SQLite, which would leave its mode to the umask. Its journal gets the mode of the file.
        os.close(os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        database = sqlite3.connect(self._file, timeout=BUSY, isolation_level=None)
        try:
            database.execute(_DURABLE)
        except sqlite3.Error:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Make the table in a file that is empty, and look whose a file is that is not."""
        (application,) = database.execute("PRAGMA application_id").fetchone()
        if application == APPLICATION:
            return
        if application or database.execute("SELECT 1 FROM sqlite_schema").fetchone():
            raise self._no_ledger("it is a database of another program")
        database.execute(_TABLE)
        database.execute(f"PRAGMA application_id = {APPLICATION}")

    def _record(self, body: str, version: int) -> Record:
        try:
            return Record.model_validate_json(body).model_copy(update={"version": version})
        except ValidationError as wrong:
            raise self._no_ledger(f"it is damaged: a record is none ({wrong.error_count()} fields)") from None

    def _no_ledger(self, why: str) -> StageFault:
        return blocked(Stage.GRANTS, "ledger-damaged", f"{self._file} cannot be used as the ledger, {why}; restore it from a backup")
