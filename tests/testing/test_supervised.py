"""A private server is ended at any moment of its start, and nobody else with it."""

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from mesh_runtime.testing import supervise
from mesh_runtime.testing.stopping import stopped_at
from mesh_runtime.testing.supervised import ServerFailed, Supervised

#: Ends a server while its start waits for what the supervisor says, which is before anybody can know the server's process id.
ENDED_EARLY = """
    import sys, threading
    from pathlib import Path
    import psutil
    from tests.testing.test_supervised import Sleeper
    sleeper = Sleeper(Path(sys.argv[1]))
    starting = threading.Thread(target=sleeper.start)
    starting.start()
    while not any("supervise" in " ".join(child.cmdline()) for child in psutil.Process().children()): pass
    while (frame := sys._current_frames().get(starting.ident)) and frame.f_code.co_name != "_launch": pass
    sleeper.dispose()
    starting.join()
    print("left", psutil.Process().children(recursive=True), sleeper.directory.exists(), flush=True)
"""


class Sleeper(Supervised):
    """The least that can be started."""

    what: ClassVar[str] = "the sleeper"
    failed: ClassVar[type[ServerFailed]] = ServerFailed
    stop_limit: ClassVar[float] = 5.0

    def start(self) -> None:
        """Start it."""
        self._launch([{"name": "server", "argv": ["sleep", "60"], "env": {"PATH": "/usr/bin:/bin"}, "log": str(self.directory / "log")}])


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Sleeper]:
    (tmp_path / "own").mkdir()
    sleeper = Sleeper(tmp_path / "own")
    yield sleeper
    sleeper.dispose()


def test_one_that_is_ended_while_it_starts_ends_alone(tmp_path: Path) -> None:
    """Its group's other processes live: a process id that is not known yet (0) would have meant all of them."""
    (tmp_path / "own").mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ENDED_EARLY), str(tmp_path / "own")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=20,
        start_new_session=True,
    )
    assert ran.returncode == 0, ran
    assert ran.stdout.splitlines()[-1] == "left [] False"


async def test_told_to_stop_while_it_starts_nothing_of_it_is_left(sleeper: Sleeper) -> None:
    """
    Removal: mesh_runtime/testing/supervised.py: await asyncio.to_thread(self.dispose)  # whoever was told to start it has not got it
    Assertion: assert not sleeper.directory.exists()
    """
    before = set(psutil.Process().children())
    with pytest.raises(asyncio.CancelledError):
        await stopped_at(0, sleeper.__aenter__())
    assert not sleeper.directory.exists()
    assert set(psutil.Process().children()) <= before


def test_what_is_disposed_of_cannot_be_started(sleeper: Sleeper) -> None:
    sleeper.dispose()
    before = psutil.Process().children()
    with pytest.raises(ServerFailed, match="the sleeper was disposed of"):
        sleeper.start()
    assert psutil.Process().children() == before


def test_a_supervisor_that_cannot_start_it_is_named_and_leaves_nothing(sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "__file__", "/no/such/program")
    with pytest.raises(ServerFailed, match="the sleeper was not started: its supervisor ended with 2"):
        sleeper.start()
    assert not sleeper.running
    sleeper.kill()


def test_one_that_is_disposed_of_while_it_stops_has_ended_first(sleeper: Sleeper) -> None:
    sleeper.start()
    _, server = sleeper.pids
    waiting = threading.Thread(target=sleeper._end)  # what each stop does once it has sent its signal
    waiting.start()
    sleeper.dispose()
    assert not psutil.pid_exists(server)
    waiting.join()
