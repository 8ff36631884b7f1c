"""The state socket answers while the loop turns, whatever else may be broken; its client says why when it does not."""

import asyncio
import json
import os
import resource
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mesh_runtime.health.check import NotAlive, check, read_state
from mesh_runtime.health.serving import serve_state
from mesh_runtime.logging import register_secret
from mesh_runtime.testing.stopping import stopped_at

WAITING = {"state": "waiting", "stage": "reach", "cause": "10.0.0.1:5671 refuses connections", "attempts": 3, "ready": False}
READY = {"state": "ready", "ready": True}


async def in_thread(function: Callable[[], Any]) -> Any:
    """Call the client from another thread: it blocks, and the loop must turn to answer it. A NotAlive is returned."""

    def run() -> Any:
        try:
            return function()
        except NotAlive as error:
            return error

    return await asyncio.to_thread(run)


async def until(true: Callable[[], bool], within: float = 5.0) -> None:
    async with asyncio.timeout(within):
        while not true():  # noqa: ASYNC110  (the kernel sends no event)
            await asyncio.sleep(0.01)


async def test_each_connection_gets_the_state_of_its_moment(tmp_path: Path) -> None:
    states = iter([WAITING, READY])
    async with serve_state(tmp_path, lambda: next(states)):
        assert await in_thread(lambda: read_state(tmp_path)) == WAITING
        assert await in_thread(lambda: read_state(tmp_path)) == READY


async def test_told_to_stop_at_each_wait_of_its_start_nothing_is_served(tmp_path: Path) -> None:
    waits, serving = 0, None
    while serving is None:
        starting = serve_state(tmp_path, lambda: READY)
        try:
            await stopped_at(waits, starting.__aenter__())
            serving = starting
        except asyncio.CancelledError:
            waits += 1
            assert not (tmp_path / "state").exists()
    assert await in_thread(lambda: read_state(tmp_path)) == READY
    await serving.__aexit__(None, None, None)
    assert waits > 0


async def test_the_answer_is_one_json_document_and_then_the_end(tmp_path: Path) -> None:
    async with serve_state(tmp_path, lambda: WAITING):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "state")
        assert json.loads(await reader.read()) == WAITING
        writer.close()
        await writer.wait_closed()


async def test_the_directory_is_made_and_the_socket_is_for_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "states" / "web@node-1"
    async with serve_state(directory, lambda: READY):
        assert stat.S_IMODE((directory / "state").stat().st_mode) == 0o600
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert os.listdir(directory) == ["state"]  # noqa: PTH208
    assert list(directory.iterdir()) == []


async def test_a_path_longer_than_a_sockets_address_is_served_and_dialled(tmp_path: Path) -> None:
    """The line whose removal makes this fail: the path by `/proc/self/fd` in `serving._bound` (or in `check.read_state`)."""
    directory = tmp_path / ("d" * 120) / ("e" * 120)
    async with serve_state(directory, lambda: READY):
        assert await in_thread(lambda: check(directory, ready=True)) == 0


async def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "state"))
    left.close()
    assert isinstance(await in_thread(lambda: read_state(tmp_path)), NotAlive)
    async with serve_state(tmp_path, lambda: READY):
        assert await in_thread(lambda: read_state(tmp_path)) == READY


async def test_an_older_server_does_not_remove_the_socket_of_a_newer_one(tmp_path: Path) -> None:
    async with serve_state(tmp_path, lambda: READY):
        older = serve_state(tmp_path, lambda: WAITING)
        await older.__aenter__()
        async with serve_state(tmp_path, lambda: READY):
            await older.__aexit__(None, None, None)
            assert await in_thread(lambda: read_state(tmp_path)) == READY


async def test_a_registered_secret_in_a_cause_is_masked(tmp_path: Path) -> None:
    register_secret("S3cr3t-of-state")
    async with serve_state(tmp_path, lambda: {"cause": "amqps://u:S3cr3t-of-state@b", "ready": False}):
        assert await in_thread(lambda: read_state(tmp_path)) == {"cause": "amqps://u:***@b", "ready": False}


async def test_what_json_does_not_know_is_shown_as_text(tmp_path: Path) -> None:
    async with serve_state(tmp_path, lambda: {"path": Path("/x"), "since": float("nan")}):
        assert await in_thread(lambda: read_state(tmp_path)) == {"path": "/x", "since": "nan"}


async def test_a_snapshot_that_raises_costs_that_answer_alone_and_is_reported(tmp_path: Path) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    broken = [True]

    def snapshot() -> dict[str, Any]:
        if broken.pop():
            raise ValueError("of the snapshot")
        return READY

    async with serve_state(tmp_path, snapshot):
        failed = await in_thread(lambda: read_state(tmp_path))
        assert "no JSON document" in str(failed)
        broken.append(False)
        assert await in_thread(lambda: read_state(tmp_path)) == READY
    assert [str(each["exception"]) for each in reported] == ["of the snapshot"]


async def test_nothing_is_left_open_behind_clients_that_hang_or_leave(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    async with serve_state(tmp_path, lambda: {"big": "x" * 30_000, "ready": True}):
        hanging = socket.socket(socket.AF_UNIX)
        hanging.connect(str(tmp_path / "state"))
        for _ in range(20):
            leaving = socket.socket(socket.AF_UNIX)
            leaving.connect(str(tmp_path / "state"))
            leaving.close()
        assert await in_thread(lambda: check(tmp_path, ready=True)) == 0
    hanging.close()
    await until(lambda: len(os.listdir("/proc/self/fd")) == before)  # noqa: PTH208


Asked = Callable[..., Awaitable[int]]


@pytest.mark.parametrize(
    ("state", "ready", "code"), [(WAITING, False, 0), (WAITING, True, 1), (READY, True, 0), ({"ready": "yes"}, True, 1), ({}, False, 0)]
)
async def test_alive_is_0_and_ready_is_0_only_if_the_state_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: dict[str, Any], ready: bool, code: int
) -> None:
    async with serve_state(tmp_path, lambda: state):
        assert await in_thread(lambda: check(tmp_path, ready=ready)) == code
    written = capsys.readouterr()
    assert bool(written.err) == bool(code)
    if state is WAITING:
        assert "stage=reach" in written.out + written.err
        assert "10.0.0.1:5671" in written.out + written.err


async def test_json_prints_the_state_whatever_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with serve_state(tmp_path, lambda: WAITING):
        assert await in_thread(lambda: check(tmp_path, ready=True, as_json=True)) == 1
    assert json.loads(capsys.readouterr().out) == WAITING


def test_without_a_process_it_is_not_alive_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path) == 1
    assert "has no socket" in capsys.readouterr().err
    assert check(tmp_path / "missing") == 1
    assert "No such file or directory" in capsys.readouterr().err
    (tmp_path / "state").write_text("no socket")
    assert check(tmp_path) == 1
    assert "not alive:" in capsys.readouterr().err


async def test_a_blocked_loop_is_not_alive_and_alive_again_when_it_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B39: the sign of life is the loop's answer, not a socket that merely stands."""
    release = threading.Event()
    codes: list[int] = []

    def ask() -> None:
        codes.append(check(tmp_path, timeout=0.2))
        release.set()

    async with serve_state(tmp_path, lambda: READY):
        thread = threading.Thread(target=ask)
        thread.start()
        release.wait(5)  # blocks the loop, as a bad handler would
        thread.join()
        assert codes == [1]
        assert "no answer within 0.2 s" in capsys.readouterr().err
        assert await in_thread(lambda: check(tmp_path)) == 0


async def test_a_whole_check_costs_under_150_ms_of_cpu_and_imports_nothing_heavy(tmp_path: Path) -> None:
    """The best of several processes: others run on the same cores."""
    program = (
        "import sys; from mesh_runtime.health.check import check; code = check(sys.argv[1], ready=True);"
        "heavy = {'asyncio', 'pydantic', 'structlog', 'logging', 'aio_pika', 'cryptography', 'pathlib'} & set(sys.modules);"
        "sys.exit(f'imports {heavy}' if heavy - before else code)"
    )
    # What a virtual environment's own start-up files import is not ours to count.
    program = "import sys; before = set(sys.modules); " + program

    def run() -> float:
        start = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=20, check=False)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert (done.returncode, done.stderr) == (0, "")
        return end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime

    async with serve_state(tmp_path, lambda: READY):
        spent = [await in_thread(run) for _ in range(3)]
    assert min(spent) < 0.150


def test_the_whole_answer_must_come_in_time(tmp_path: Path) -> None:
    """A server that sends a byte now and then does not keep the check from ending."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "state"))
    listening.listen()
    over = threading.Event()

    def drip() -> None:
        link, _ = listening.accept()
        with link:
            while not over.wait(0.05):
                try:
                    link.send(b" ")
                except OSError:
                    return

    thread = threading.Thread(target=drip)
    thread.start()
    began = time.monotonic()
    with pytest.raises(NotAlive, match="no answer within"):
        read_state(tmp_path, timeout=0.3)
    assert time.monotonic() - began < 2
    over.set()
    thread.join()
    listening.close()
