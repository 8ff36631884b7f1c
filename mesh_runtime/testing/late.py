"""The fixtures that stand on the library itself, which is imported when the first test asks for one.

A plugin is loaded before the first test of any run in its environment. Importing the library there would make all of them fail where only
the library is broken, make each pay for it, and hide its import from a measurement of coverage that begins later.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mesh_runtime.testing.broker import PrivateBroker
    from mesh_runtime.testing.founding import FoundMesh
    from mesh_runtime.testing.management import Management
    from mesh_runtime.testing.mesh import StandInMesh
    from mesh_runtime.testing.responder import MakeResponder
    from mesh_runtime.testing.running import Runtimes
    from mesh_runtime.testing.states import States


@pytest.fixture
def mesh(tmp_path: Path) -> "StandInMesh":
    """A stand-in for the mesh, in which a module composes against stated answers, without a broker."""
    from mesh_runtime.testing.mesh import StandInMesh

    return StandInMesh(tmp_path)


@pytest.fixture
def runtimes(broker: "PrivateBroker", management: "Management", vhost: str, tmp_path: Path) -> "Runtimes":
    """Runs runtimes of a test's own classes in its virtual host."""
    from mesh_runtime.testing.running import Runtimes

    return Runtimes(broker, management, vhost, tmp_path)


@pytest.fixture
def responder(runtimes: "Runtimes") -> "MakeResponder":
    """Makes responders in the test's virtual host: ``async with responder("controller@stand-in", {OverlayPeers: Found(...)}) as one``."""
    from mesh_runtime.testing.responder import responders_of

    return responders_of(runtimes)


@pytest.fixture
def founding(broker: "PrivateBroker", management: "Management", vhost: str, tmp_path: Path) -> "FoundMesh":
    """Founds meshes in the test's virtual host: ``mesh = await founding(machine="beta")``, with the arguments of ``found_mesh``."""
    from mesh_runtime.testing.founding import founding_on

    return founding_on(broker, management, vhost, tmp_path)


@pytest.fixture
def logs() -> Iterator[list[logging.LogRecord]]:
    """What this process logs during the test, from every logger, at DEBUG. A process's own lines are ``RuntimeProcess.logs``."""
    from mesh_runtime.testing.logs import own_records

    with own_records() as records:
        yield records


@pytest.fixture
def states() -> "Callable[[Path], States]":
    """The states of a runtime, by its state directory: ``async with states(directory) as one: await one.until_ready()``."""
    from mesh_runtime.testing.states import States

    return States
