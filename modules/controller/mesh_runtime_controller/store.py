"""The inventory's file: opened, founded, migrated, and refused when it is damaged.

A new store is made beside its place, whole, and then linked into it; so what stands in its place is a store or it is damaged, and no store
is ever made over anything. A store that is gone but has been here is as damaged as one that is cut short: an authority without its
history would be obeyed by hosts that know more than it does.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from pydantic import ValidationError
from sqlalchemy import Connection, event, insert, inspect, select, text
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from mesh_runtime.contracts import Founding
from mesh_runtime.startup import Stage, StageFault, blocked, waiting
from mesh_runtime.trust.files import PRIVATE, write_whole
from mesh_runtime_controller import tables

#: Seconds that a transaction waits for another's write.
BUSY_TIMEOUT = 5.0

_PRAGMAS = ("synchronous = FULL", "foreign_keys = ON", f"busy_timeout = {int(BUSY_TIMEOUT * 1000)}")


class Store:
    """An open inventory. Reads are of one moment; writes are whole or not at all, one at a time."""

    def __init__(self, file: Path, *pragmas: str) -> None:
        self.file = file
        self._engine = _engine(file, (*_PRAGMAS, *pragmas))
        self._writes = self._engine.execution_options(mesh_begin="BEGIN IMMEDIATE")

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that sees the inventory as it is at its first statement."""
        async with self._engine.begin() as connection:
            yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that holds the right to write from its begin: what it reads cannot move under it."""
        async with self._writes.begin() as connection:
            yield connection

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()

    async def check(self, founding: Founding | None) -> None:
        """Raise a ``StageFault`` unless the file is whole, of this version, and of the founding's mesh."""
        _check_size(self.file)
        try:
            async with self.write() as connection:
                found = (await connection.execute(text("PRAGMA quick_check(3)"))).scalars().all()
                if found != ["ok"]:
                    raise _damaged(self.file, "; ".join(map(str, found)))
                await connection.run_sync(self._migrate)
                mesh = (await connection.execute(select(tables.mesh.c.mesh))).scalar_one_or_none()
        except OperationalError:
            raise
        except DatabaseError as error:
            raise _damaged(self.file, str(error.orig)) from error
        if mesh is None:
            raise _damaged(self.file, "it does not say whose inventory it is")
        if founding is not None and founding.mesh != mesh:
            raise blocked(
                Stage.PREPARE,
                "other-mesh",
                f"{self.file} is the inventory of the mesh {mesh!r}, the founding is of {founding.mesh!r}: one is the wrong file",
            )

    def _migrate(self, connection: Connection) -> None:
        config = _alembic()
        if not inspect(connection).has_table("alembic_version"):
            raise _damaged(self.file, "it is no inventory: it has no version")
        version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
        try:
            ScriptDirectory.from_config(config).get_revision(version or "")
        except CommandError:
            raise blocked(
                Stage.PREPARE, "newer-store", f"{self.file} was made by a newer controller (version {version!r}): install that one"
            ) from None
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


async def open_store(file: Path, founding: Founding | None, now: Callable[[], str]) -> Store:
    """Open the inventory at ``file``; one that never was is founded. Raises ``StageFault`` where it must not be used."""
    if _never_was(file):
        if founding is None:
            raise waiting(
                Stage.PREPARE,
                "no-history",
                f"there is no inventory at {file} and no founding yet: give MESH_CONTROLLER_FOUNDING, or restore the inventory",
            )
        await _found(file, founding, now())
    store = Store(file)
    try:
        await store.check(founding)
        await asyncio.to_thread(_mark, _marker(file))
    except BaseException:
        await store.close()
        raise
    return store


def read_founding(file: Path | None) -> Founding | None:
    """The founding in ``file``, or nothing if no such file is named or there yet. Raises ``StageFault`` if it is malformed, ``OSError``."""
    if file is None:
        return None
    try:
        return Founding.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as malformed:
        first = malformed.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise blocked(Stage.PREPARE, "malformed-founding", f"{file}: {where}: {first['msg']}") from None


def _check_size(file: Path) -> None:
    if not file.exists() or file.stat().st_size == 0:
        raise _damaged(file, "it is empty, cut to 0 bytes" if file.exists() else "it is gone")


async def _found(file: Path, founding: Founding, moment: str) -> None:
    new = file.with_name(f"{file.name}.new")
    for left in (new, new.with_name(f"{new.name}-wal"), new.with_name(f"{new.name}-shm")):
        left.unlink(missing_ok=True)  # of a founding that was cut short: it was never in its place
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
    store = Store(new, "journal_mode = WAL")  # stays in the file; nothing else is ever written to what may not be ours
    try:
        async with store.write() as connection:
            await connection.run_sync(_create)
            await connection.execute(insert(tables.mesh).values(id=1, mesh=founding.mesh, epoch=founding.epoch, revision=1, founded=moment))
            rows = [{"name": one.name, "address": one.address, "generation": 0, "since_revision": 1} for one in founding.machines]
            await connection.execute(insert(tables.machines), rows)
    finally:
        await store.close()
    await asyncio.to_thread(_into_place, new, file)


def _create(connection: Connection) -> None:
    config = _alembic()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _into_place(new: Path, file: Path) -> None:
    os.link(new, file)  # unlike a rename, never over anything
    new.unlink()
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _never_was(file: Path) -> bool:
    """Whether there is no inventory and has been none. Raises a fault if one has been there and is gone."""
    if file.exists():
        return False
    if _marker(file).exists() or file.with_name(f"{file.name}-wal").exists():
        raise _damaged(file, "it is gone, and it has been here")
    return True


def _marker(file: Path) -> Path:
    """Stands beside a store from its first use on, so that a store that is lost is told from one that never was."""
    return file.with_name(f"{file.name}.founded")


def _mark(marker: Path) -> None:
    if not marker.exists():
        write_whole(marker, b"An inventory has been here. Without it, restore it; a new one would know nothing of this mesh.\n", PRIVATE)


def _damaged(file: Path, how: str) -> StageFault:
    return blocked(
        Stage.PREPARE,
        "damaged-store",
        f"the inventory {file} cannot be used: {how}. Nothing is composed and no new one is made over it; restore it from a backup",
    )


def _alembic() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _engine(file: Path, pragmas: tuple[str, ...]) -> AsyncEngine:
    # mode=rw: a connection never makes a file; only founding does.
    engine = create_async_engine(f"sqlite+aiosqlite:///file:{quote(str(file.absolute()))}?mode=rw&uri=true")

    @event.listens_for(engine.sync_engine, "connect")
    def prepared(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # this module says BEGIN itself: the driver's own comes too late for reads
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "invalidate")
    def given_up(connection: Any, record: Any, error: BaseException | None) -> None:
        # Cut in the middle of a read it is only closed, and SQLite keeps its transaction, and the lock, until that cursor is collected.
        with suppress(Exception):  # one that is broken cannot, and is closed next
            connection.rollback()

    @event.listens_for(engine.sync_engine, "begin")
    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("mesh_begin", "BEGIN"))

    return engine
