"""``health`` tells alive from ready, needs nothing outside the machine, and costs next to nothing, however long a runtime waits."""

import asyncio
import json
import os
import statistics
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from mesh_runtime.testing.gate import Gate, Mode
from mesh_runtime.testing.ports import free_port
from mesh_runtime.testing.processes import RuntimeProcess, script
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from tests.parts import Sage
from tests.startup.launching import Launcher, environment
from tests.startup.parts import Blocking

SAMPLES = 100


@dataclass(frozen=True)
class Checked:
    """One run of the command."""

    code: int
    said: str
    cpu: float
    """Seconds."""
    took: float
    """Seconds."""


def check(directory: Path, *flags: str) -> Checked:
    """Run ``health`` as an engine does: a process whose cost is what the kernel counted for it."""
    command = [script("networking")[0], "health", *flags]
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        env={"MESH_STATE_DIR": str(directory), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        said = stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Checked(process.returncode, said, usage.ru_utime + usage.ru_stime, time.monotonic() - began)


async def checked(process: RuntimeProcess, *flags: str) -> Checked:
    return await asyncio.to_thread(check, process.states.directory, *flags)


@pytest.mark.timeout(90)  # a hundred processes, one after the other, on a machine that may be busy
async def test_b39_it_is_alive_on_each_of_a_hundred_samples_of_a_long_wait(launch: Launcher, tmp_path: Path) -> None:
    """B39: a supervisor kills what legitimately waits.

    Removal: mesh_runtime/runtime/life.py: owner.start(self._serve(), "state")
    Assertion: {one.code for one in samples} == {0}
    """
    process = await launch.start(environment(tmp_path, f"127.0.0.1:{free_port()}"), script("networking"))
    began = await process.logs.until(event="waiting")
    samples = [await checked(process) for _ in range(SAMPLES)]
    assert {one.code for one in samples} == {0}
    assert statistics.median(one.cpu for one in samples) < 0.150
    assert statistics.median(one.took for one in samples) < 1.0
    not_ready = await checked(process, "--ready")
    assert not_ready.code == 1
    for words in ("waiting", "reach", "since=", "refused"):
        assert words in not_ready.said
    shown = await process.states.now()
    assert shown is not None
    assert shown["since"] in not_ready.said
    waited = abs(datetime.fromisoformat(shown["since"]) - datetime.fromisoformat(began["time"]))
    assert waited < timedelta(seconds=5), "it waits for the same thing all the time"
    assert (process.running, process.restarts) == (True, 0)


async def test_b39_a_blocked_loop_is_not_alive_until_it_turns_again(launch: Launcher, runtimes: Runtimes) -> None:
    process = await launch.on(runtimes, Blocking)
    await process.states.until_ready(within=15)
    assert (await checked(process)).code == 0
    assert (await checked(process, "--ready")).code == 0
    (process.states.directory / "block").touch()
    blocked = await until(lambda: _unless_alive(process), within=15)
    assert blocked is not None
    assert "not alive" in blocked.said
    assert blocked.took < 10.0
    (process.states.directory / "block").unlink()
    assert await until(lambda: _if_alive(process), within=10)
    assert (process.restarts, await process.stop()) == (0, 0)


async def _unless_alive(process: RuntimeProcess) -> Checked | None:
    found = await checked(process)
    return found if found.code == 1 else None


async def _if_alive(process: RuntimeProcess) -> Checked | None:
    found = await checked(process)
    return found if found.code == 0 else None


async def test_b39_it_asks_neither_a_name_server_nor_the_broker(launch: Launcher, runtimes: Runtimes, tmp_path: Path) -> None:
    """With a name that nobody knows, and with a broker that is frozen: as quick, and alive."""
    async with Gate(runtimes.broker.ports.amqps) as gate:
        nameless = await launch.start(environment(tmp_path, "broker.mesh.invalid:5671"), script("networking"))
        frozen = await launch.on(runtimes, Sage, MESH_BROKER=gate.address, MESH_HEARTBEAT="30")
        await frozen.states.until_ready(within=15)
        usual = statistics.median([(await checked(frozen)).took for _ in range(5)])
        await gate.become(Mode.FREEZE)
        await nameless.states.until(lambda one: one["stage"] == "resolve", within=10)
        for process in (nameless, frozen):
            samples = [await checked(process) for _ in range(5)]
            assert [one.code for one in samples] == [0] * 5
            assert statistics.median(one.took for one in samples) < 3 * usual + 1.0
        assert (await checked(frozen, "--ready")).code == 0, "within a heartbeat nobody can know yet"
        assert await frozen.kill() != 0


def test_without_a_process_it_is_not_alive(tmp_path: Path) -> None:
    found = check(tmp_path)
    assert (found.code, found.said.startswith("not alive: ")) == (1, True)


async def test_json_is_the_whole_state(launch: Launcher, tmp_path: Path) -> None:
    process = await launch.start(environment(tmp_path, f"127.0.0.1:{free_port()}"), script("networking"))
    await process.states.until_at("reach", "waiting", within=10)
    shown = json.loads((await checked(process, "--json")).said)
    assert (shown["identity"], shown["pid"], shown["stage"]) == ("networking@alpha", process.pid, "reach")
