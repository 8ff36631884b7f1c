"""Fixtures of the tests of starting and stopping."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from mesh_runtime.testing.broker import PrivateBroker
from tests.startup.launching import Launcher, PreparedBroker


@pytest_asyncio.fixture
async def launch(tmp_path: Path) -> AsyncIterator[Launcher]:
    """Starts runtimes as processes of their own; none of them outlives the test."""
    launcher = Launcher(tmp_path)
    yield launcher
    for process in launcher.processes:
        await process.kill()


@pytest.fixture
def prepared(own_broker: PrivateBroker, tmp_path: Path) -> PreparedBroker:
    """A broker of this test's own, not started yet, whose logins are prepared."""
    return PreparedBroker(own_broker, tmp_path)
