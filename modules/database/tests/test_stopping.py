"""Work at the server that is told to stop, wherever it waits just then, and twice: nothing of it is left, and nothing of it goes on."""

import asyncio
from typing import TYPE_CHECKING

import pytest
from psycopg import waiting

from mesh_runtime.startup import Stage
from mesh_runtime.testing.stopping import stopped_at
from mesh_runtime.testing.waiting import until
from mesh_runtime_database.connecting import work_at
from mesh_runtime_database.linking import Connection, open_session

if TYPE_CHECKING:
    from conftest import Provisioner


async def test_told_to_stop_at_each_wait_of_opening(provisioner: "Provisioner", monkeypatch: pytest.MonkeyPatch) -> None:
    """That no link is left open is seen by the fixture that looks after every test, and by the driver's own warning."""
    monkeypatch.setattr(waiting, "MAX_BUSY_TIME", 0.0)  # else the driver lets others go first only when the loop was busy
    waits, connection = 0, None
    while connection is None:
        try:
            connection = await stopped_at(waits, open_session(provisioner.postgres.superuser))
        except asyncio.CancelledError:
            waits += 1
    await connection.close()
    assert waits >= 3, "it waits for the link, for the server's words, and once for nothing but others' turn"


async def test_told_to_stop_twice_what_it_does_on_another_session_ends_too(provisioner: "Provisioner") -> None:
    """
    Removal: modules/database/mesh_runtime_database/connecting.py: work.cancel()
    Assertion: await until(lambda: not working(), "all of it has ended", within=8.0)
    """
    fields = provisioner.postgres.superuser

    async def inner(connection: Connection) -> None:
        await connection.execute("SELECT pg_sleep(12)")

    async def outer(connection: Connection) -> None:
        await work_at(fields, inner, Stage.GRANTS, "inner", {})

    def working() -> set["asyncio.Task[object]"]:
        return {task for task in asyncio.all_tasks() if task.get_name().startswith("work at")}

    def asleep() -> bool:
        return bool(provisioner.postgres.query("SELECT FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(12)'"))

    caller = asyncio.create_task(work_at(fields, outer, Stage.GRANTS, "outer", {}))
    await until(asleep, "the inner work is under way")
    for _ in range(2):
        caller.cancel()
        await asyncio.wait([caller], timeout=0.1)
    assert caller.cancelled()
    await until(lambda: not working(), "all of it has ended", within=8.0)
