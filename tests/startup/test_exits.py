"""A process ends by itself for stated reasons only, each with its own exit code; what an author's code raises is none of them."""

import subprocess
import time
from pathlib import Path

import pytest

from mesh_runtime.testing.gate import Gate
from mesh_runtime.testing.ports import free_port
from mesh_runtime.testing.processes import RuntimeProcess, script
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from tests.parts import Sage
from tests.startup.launching import Launcher, environment
from tests.startup.parts import Careless, Leaving, Unready


def run(*arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    program = script("networking")[0]
    clean = {"PATH": "/usr/bin:/bin", **(environ or {})}
    return subprocess.run([program, *arguments], env=clean, capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize("arguments", [["serve"], ["run", "now"], ["health", "--loud"], ["--help"]])
def test_wrong_usage_exits_64_with_a_usage_line(arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == "usage: mesh-runtime-networking [run] | health [--ready] [--json] | manifest | --version\n"


def test_another_programs_name_exits_64(tmp_path: Path) -> None:
    other = tmp_path / "run-it"
    other.symlink_to(script("networking")[0])
    done = subprocess.run([str(other)], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 64
    assert "mesh-runtime-<module>" in done.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [("MESH_BROKER", "10.0.0.1:99999"), ("MESH_CA_PIN", "abc"), ("MESH_MACHINE", "Node_1"), ("MESH_HEARTBEAT", "soon")],
)
def test_a_malformed_setting_exits_78_with_one_line_that_names_it(tmp_path: Path, variable: str, value: str) -> None:
    done = run("run", environ=environment(tmp_path, "127.0.0.1:5671", **{variable: value}))
    assert (done.returncode, done.stdout) == (78, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert variable in lines[0]


def test_a_setting_that_is_missing_exits_78_and_a_file_that_is_missing_does_not(tmp_path: Path) -> None:
    variables = environment(tmp_path, "127.0.0.1:5671")
    del variables["MESH_MACHINE"]
    done = run("run", environ=variables)
    assert (done.returncode, "MESH_MACHINE" in done.stderr, len(done.stderr.splitlines())) == (78, True, 1)


async def test_an_operators_own_limit_exits_75_and_says_what_it_waited_for(launch: Launcher, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    process = await launch.start(environment(tmp_path, address, MESH_STARTUP_DEADLINE="1.5"), script("networking"))
    began = time.monotonic()
    assert await process.ended(15) == 75
    assert time.monotonic() - began >= 1.5
    said = process.logs.records(level="error")
    assert [one["event"] for one in said] == ["not ready within MESH_STARTUP_DEADLINE"]
    assert said[0]["stage"] == "reach"
    assert address in said[0]["cause"]
    assert "Traceback" not in process.logs.text


async def test_the_limit_counts_for_the_first_start_alone(launch: Launcher, runtimes: Runtimes) -> None:
    """Who was ready once waits without it: the limit is for starting."""
    async with Gate(runtimes.broker.ports.amqps) as gate:
        process = await launch.on(runtimes, Sage, MESH_BROKER=gate.address, MESH_STARTUP_DEADLINE="8")
        began = time.monotonic()
        await process.states.until_ready(within=8)
        gate.target = free_port()
        gate.cut()
        await process.states.until_at("trust", "waiting", within=5)
        await process.states.until(lambda _: time.monotonic() > began + 9, within=12)
        assert process.running
        assert await process.stop() == 0


async def test_what_prepare_raises_is_shown_and_waited_for_and_its_traceback_is_logged_once(launch: Launcher, runtimes: Runtimes) -> None:
    process = await launch.on(runtimes, Unready)
    shown = await process.states.until(lambda one: one["stage"] == "prepare" and one["attempts"] >= 3, within=15)
    assert shown["state"] == "waiting"
    assert shown["cause"]["code"] == "ConnectionRefusedError"
    assert shown["cause"]["text"] == "ConnectionRefusedError: [Errno 111] the database is away"
    raised = process.logs.records(event="a stage raised")
    assert len(raised) == 1
    assert "the database is away" in str(raised[0])
    assert "prepare" in process.logs.text
    assert len([line for line in process.logs.lines if "Traceback" in line.text or "traceback" in line.text.lower()]) <= 1
    (process.states.directory / "prepared").touch()
    await process.states.until_ready(within=15)
    assert (process.restarts, await process.stop()) == (0, 0)


async def test_keep_that_raises_is_shown_as_degraded_and_started_again_and_ends_nothing(launch: Launcher, runtimes: Runtimes) -> None:
    process = await launch.on(runtimes, Careless)
    await process.states.until_ready(within=15)
    shown = await process.states.until(lambda one: one["degraded"] != [], within=5)
    assert (shown["degraded"], shown["ready"]) == (["keep: keep raised LookupError"], True)
    await until(lambda: _kept(process) >= 3, "it is started again and again", within=10)
    (process.states.directory / "careful").touch()
    await process.states.until(lambda one: one["degraded"] == [], within=5)
    assert (process.restarts, await process.stop()) == (0, 0)


async def test_an_exit_that_a_task_of_the_authors_calls_is_an_error_outside_every_handler(launch: Launcher, runtimes: Runtimes) -> None:
    """The loop lets it out from whatever task raised it; its code is the author's, and would pass for one of the runtime's own."""
    process = await launch.on(runtimes, Leaving)
    await process.states.until_ready(within=15)
    (process.states.directory / "leave").touch()
    assert await process.ended(10) == 70
    (said,) = process.logs.records(event="an error outside every stage and handler ends the process")
    assert "sys.exit(3)" in said["exception"]


def _kept(process: RuntimeProcess) -> int:
    file = process.states.directory / "kept"
    return len(file.read_text().splitlines()) if file.exists() else 0


async def test_a_state_directory_that_cannot_be_used_yet_ends_nothing(launch: Launcher, runtimes: Runtimes, tmp_path: Path) -> None:
    """It is in nobody's way to become ready; it is shown once it can be."""
    blocking = tmp_path / "file"
    blocking.write_text("in the way")
    process = await launch.on(runtimes, Careless, MESH_STATE_DIR=str(blocking / "state"))
    await process.logs.until(event="the state cannot be shown", within=10)
    assert process.running
    blocking.unlink()
    await process.states.until(lambda one: not any(why.startswith("state:") for why in one["degraded"]), within=10)
    await process.states.until_ready()
    assert await process.stop() == 0
