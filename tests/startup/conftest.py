"""Fixtures of the tests of starting and stopping."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.startup.launching import Launcher


@pytest_asyncio.fixture
async def launch(tmp_path: Path) -> AsyncIterator[Launcher]:
    """Starts runtimes as processes of their own; none of them outlives the test."""
    launcher = Launcher(tmp_path)
    yield launcher
    for process in launcher.processes:
        await process.kill()
