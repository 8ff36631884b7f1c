"""A runtime as a process: its lines are kept, its states are read from outside, its starts are counted, and it ends in order."""

import signal
from pathlib import Path

import pytest

from mesh_runtime.contracts.identity import Identity
from mesh_runtime.runtime import manifest_of
from mesh_runtime.testing.ports import free_port
from mesh_runtime.testing.processes import RuntimeProcess, program_of
from mesh_runtime.testing.running import Runtimes
from tests.parts import Sage

ROOT = Path(__file__).parents[2]


def environment(directory: Path, port: int, **more: str) -> dict[str, str]:
    return {
        "MESH_BROKER": f"127.0.0.1:{port}",
        "MESH_BROKER_NAME": "broker.mesh",
        "MESH_CA_PIN": "0" * 64,
        "MESH_CREDENTIALS": str(directory / "credentials"),
        "MESH_MACHINE": "alpha",
        "MESH_STATE_DIR": str(directory / "state"),
        "PYTHONPATH": str(ROOT),
        **more,
    }


async def test_a_runtime_that_waits_is_seen_from_outside_and_ends_at_once(tmp_path: Path) -> None:
    port = free_port()
    async with RuntimeProcess(environment(tmp_path, port), program_of(Sage)) as sage:
        snapshot = await sage.states.until_at("reach", "waiting", within=10)
        assert snapshot["pid"] == sage.pid
        assert str(port) in snapshot["cause"]["text"]
        await sage.logs.until(event="waiting", stage="reach")
        assert sage.restarts == 0
        assert await sage.stop(within=5.0) == 0
    assert not sage.running


async def test_starts_that_nobody_ordered_are_counted(tmp_path: Path) -> None:
    sage = RuntimeProcess(environment(tmp_path, free_port()), program_of(Sage))
    for _ in range(2):
        async with sage:
            await sage.states.until_at("reach", within=10)
    assert (sage.ordered_starts, sage.restarts) == (2, 0)
    with (tmp_path / "state" / "starts").open("a") as starts:
        starts.write("somebody else's\n")
    assert sage.restarts == 1


async def test_a_test_class_becomes_ready_as_a_process_on_a_real_broker(runtimes: Runtimes, tmp_path: Path) -> None:
    credentials = await runtimes.login(Identity("sage", "alpha"), manifest_of(Sage, "0"))
    more = {"MESH_CA_PIN": runtimes.broker.ca.pin, "MESH_VHOST": runtimes.vhost, "MESH_CREDENTIALS": str(credentials)}
    async with RuntimeProcess(environment(tmp_path, runtimes.broker.ports.amqps, **more), program_of(Sage)) as sage, sage.states as states:
        assert (await states.until_ready())["sessions"] == 1
        stages = [seen.stage for seen in states.history if seen.stage]
        assert stages[-1] == "ready"
        sage.signal(signal.SIGTERM)
        assert await sage.ended(5.0) == 0
    assert any("drain" in line.text for line in sage.logs.lines)


async def test_a_malformed_setting_is_told_on_stderr(tmp_path: Path) -> None:
    sage = await RuntimeProcess(environment(tmp_path, 1, MESH_MACHINE="Not A Name"), program_of(Sage)).start()
    assert await sage.ended(10.0) == 78
    told = [line.text for line in sage.logs.lines if line.stream == "stderr"]
    assert len(told) == 1
    assert "MESH_MACHINE" in told[0]


def test_a_class_that_no_process_can_import_is_refused() -> None:
    class Hidden(Sage):
        """Stands inside a function."""

    with pytest.raises(TypeError, match=r"Hidden cannot be imported by another process"):
        program_of(Hidden)
