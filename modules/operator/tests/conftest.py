"""The command as a process, and what stands for those that it asks."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from mesh_runtime.broker import BrokerAt
from mesh_runtime.contracts import Identity
from mesh_runtime.settings import read_credentials
from mesh_runtime.testing.broker import PrivateBroker
from mesh_runtime.testing.founding import FoundedMesh
from mesh_runtime.testing.responder import Responder
from mesh_runtime.testing.stating import Answering

Command = Callable[..., Awaitable[tuple[int, str, str]]]
Responding = Callable[[FoundedMesh, Identity, Mapping[type, Answering]], AbstractAsyncContextManager[Responder]]


async def _run(founded: FoundedMesh | None, *arguments: str) -> tuple[int, str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MESH_")} | {"COLUMNS": "200"}
    if founded is not None:
        environment["MESH_CONTEXT"] = str(founded.context)
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("mesh")),
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(20):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
def command() -> Command:
    """Runs the command in the context of a mesh (or of none): its exit code, stdout and stderr."""
    return _run


@pytest.fixture
def responding(broker: PrivateBroker) -> Responding:
    """A responder under a login that the mesh was founded with."""

    @asynccontextmanager
    async def responds(founded: FoundedMesh, who: Identity, answers: Mapping[type, Answering]) -> AsyncIterator[Responder]:
        credentials = founded.directory / "credentials" / str(who)
        addresses = (("127.0.0.1", broker.ports.amqps),)
        at = BrokerAt(addresses, broker.name, founded.broker.vhost, 5, None, founded.pin, lambda: read_credentials(credentials))
        async with Responder(at, who, answers) as one:
            yield one

    return responds
