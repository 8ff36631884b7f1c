"""The runtime waits for its server, in its process, and says so."""

import asyncio
from typing import TYPE_CHECKING

from mesh_runtime.startup import Kind, Stage
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from mesh_runtime_database import PostgreSQL

if TYPE_CHECKING:
    from conftest import Provisioner


async def test_it_waits_for_its_server_in_process(provisioner: "Provisioner", runtimes: Runtimes) -> None:
    await asyncio.to_thread(provisioner.postgres.stop)
    async with runtimes.run(PostgreSQL, own=provisioner.module().settings) as running:
        await until(lambda: running.state.cause is not None and running.state.stage is Stage.PREPARE, "it says why", within=10.0)
        assert running.state.cause is not None
        assert (running.state.cause.kind, running.state.cause.code) == (Kind.WAITING, "refused")
        assert "Connection refused" in running.state.cause.text
        await asyncio.to_thread(provisioner.postgres.start)
        await running.ready(within=20.0)
        assert await running.module.ledger().all() == ()
