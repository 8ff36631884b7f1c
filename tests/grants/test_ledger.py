"""The embedded ledger: what every ledger must do, and what becomes of its file."""

import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from mesh_runtime.grants.ledger import Ledger, Moved
from mesh_runtime.grants.sqlite import SqliteLedger
from mesh_runtime.startup import Kind, StageFault
from mesh_runtime.testing.ledgers import LedgerSpecification, record_of


class TestSqliteLedger(LedgerSpecification):
    @pytest.fixture
    def open_ledger(self, tmp_path: Path) -> Callable[[], Ledger]:
        return lambda: SqliteLedger(tmp_path / "ledger.sqlite")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def content(file: Path) -> bytes:
    return file.read_bytes()


def write(file: Path, data: bytes) -> None:
    file.write_bytes(data)


async def test_nobody_else_may_read_the_file_nor_what_is_beside_it(file: Path) -> None:
    await SqliteLedger(file).write(record_of())
    assert [stat.S_IMODE(one.stat().st_mode) for one in file.parent.iterdir()] == [0o600]


async def test_a_damaged_file_is_refused_and_left_as_it_is(file: Path) -> None:
    await SqliteLedger(file).write(record_of())
    whole = content(file)
    for damaged in (b"x" * 8192, whole[:100] + b"\xff" * (len(whole) - 100), whole[: len(whole) // 2]):
        write(file, damaged)
        with pytest.raises(StageFault, match="cannot be used as the ledger, it is damaged") as refused:
            await SqliteLedger(file).all()
        assert refused.value.cause.kind is Kind.BLOCKED
        assert str(file) in refused.value.cause.text
        assert content(file) == damaged


async def test_a_record_that_is_none_is_refused(file: Path) -> None:
    written = await SqliteLedger(file).write(record_of())
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("UPDATE record SET body = '{}'")
    with pytest.raises(StageFault, match="a record is none"):
        await SqliteLedger(file).read(written.resource, written.consumer)


async def test_the_file_of_another_program_is_not_taken_over(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("CREATE TABLE record (resource, consumer, version, body)")
    before = content(file)
    with pytest.raises(StageFault, match="another program") as refused:
        await SqliteLedger(file).write(record_of())
    assert refused.value.cause.kind is Kind.BLOCKED
    assert content(file) == before


async def test_on_a_full_disk_nothing_is_written_and_what_was_there_stays(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself is made to find no place: by its own limit of pages."""
    ledger = SqliteLedger(file)
    first = await ledger.write(record_of())
    pages = len(content(file)) // 4096
    monkeypatch.setattr("mesh_runtime.grants.sqlite._DURABLE", f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StageFault, match="full") as full:
        await ledger.write(record_of("thing.1/two").model_copy(update={"fields": "x" * 50_000}))
    assert full.value.cause.kind is Kind.WAITING
    assert await ledger.all() == (first,)
    monkeypatch.undo()
    await ledger.write(record_of("thing.1/two").model_copy(update={"fields": "x" * 50_000}))


async def test_a_directory_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(StageFault, match="No such file") as missing:
        await SqliteLedger(tmp_path / "later" / "ledger.sqlite").all()
    assert missing.value.cause.kind is Kind.WAITING


async def test_a_ledger_that_somebody_else_is_writing_is_waited_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mesh_runtime.grants.sqlite.BUSY", 0.05)
    ledger = SqliteLedger(file)
    written = await ledger.write(record_of())
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StageFault, match="locked") as locked:
            await ledger.write(written)
        assert locked.value.cause.kind is Kind.WAITING
    assert (await ledger.write(written)).version == written.version + 1
    with pytest.raises(Moved):
        await ledger.write(written)
