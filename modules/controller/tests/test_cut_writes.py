"""A write of the inventory that is told to stop, wherever it waits just then: it is whole or not there, and others write on."""

import asyncio
import gc
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh_runtime.contracts import Refused
from mesh_runtime.testing.stopping import stopped_at
from mesh_runtime_controller.changes import record_refusal

if TYPE_CHECKING:
    from conftest import Desk


@pytest.fixture
def never_collected() -> Iterator[None]:
    """What nobody refers to but itself stays, as it does for long in a process with little to do."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def locked(file: Path) -> str:
    """The driver's words, if nobody can write now."""
    with closing(sqlite3.connect(file, timeout=0.3, isolation_level=None)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            return str(error)
    return ""


async def test_told_to_stop_at_each_wait_of_a_write(desk: "Desk", never_collected: None) -> None:
    """
    Removal: modules/controller/mesh_runtime_controller/store.py: connection.rollback()
    Assertion: assert not locked(desk.file)
    """

    async def refused(waits: int) -> str:
        return await record_refusal(desk.controller.store, "alpha", Refused(code=f"cut-{waits}", why="it is cut"), f"at wait {waits}")

    await refused(-1)  # so that its read finds a row: the rest of an unfinished read is what holds the lock
    waits, since = 0, ""
    while not since:
        try:
            since = await stopped_at(waits, refused(waits))
        except asyncio.CancelledError:
            waits += 1
        assert not locked(desk.file)
    assert since == f"at wait {waits}"
    assert waits > 5
