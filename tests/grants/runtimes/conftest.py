"""What every test here sees of what the library said, and a stand-in server of its own."""

from collections.abc import Iterator

import pytest

from tests.grants.parts import StandInServer
from tests.grants.runtimes.parts import MakerRuntime, Pool, ReleasingServer
from tests.records import _nothing_that_only_the_loop_heard_of, records

__all__ = ["_nothing_that_only_the_loop_heard_of", "records", "server"]


@pytest.fixture
def server() -> Iterator[StandInServer]:
    """The server that every provisioner and every pool of the test speaks to."""
    MakerRuntime.shared = Pool.shared = ReleasingServer()
    Pool.opened.clear()
    yield MakerRuntime.shared
    left = [pool for pool in Pool.opened if not pool.closed]
    Pool.opened.clear()
    assert not left, f"left open: {left}"
