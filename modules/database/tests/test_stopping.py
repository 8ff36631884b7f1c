"""A session that is told to stop while it is being opened, wherever it waits just then: nothing of it is left."""

import asyncio
import types
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, cast

import pytest
from psycopg import waiting

from mesh_runtime_database.linking import Connection, open_session

if TYPE_CHECKING:
    from conftest import Provisioner


@types.coroutine
def opened(fields: Mapping[str, Any], stop_at: int) -> Generator[Any, None, Connection | None]:
    """A session; or None, if opening it comes to its ``stop_at``-th wait, for there it is told to stop."""
    opening = open_session(fields)
    waits = 0
    while True:
        try:
            awaited = opening.send(None)
        except StopIteration as ended:
            return cast("Connection", ended.value)
        if waits == stop_at:
            with pytest.raises(asyncio.CancelledError):
                opening.throw(asyncio.CancelledError())
            return None
        waits += 1
        yield awaited


async def test_told_to_stop_at_each_wait_of_opening(provisioner: "Provisioner", monkeypatch: pytest.MonkeyPatch) -> None:
    """That no link is left open is seen by the fixture that looks after every test, and by the driver's own warning."""
    monkeypatch.setattr(waiting, "MAX_BUSY_TIME", 0.0)  # else the driver lets others go first only when the loop was busy
    waits = 0
    while (connection := await opened(provisioner.postgres.superuser, stop_at=waits)) is None:
        waits += 1
    await connection.close()
    assert waits >= 3, "it waits for the link, for the server's words, and once for nothing but others' turn"
