"""A runtime that is started before its broker waits in its own process, says where and why, ends when told, and is there with it."""

import asyncio
import signal
import statistics
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from mesh_runtime.contracts.composing import Machine
from mesh_runtime.contracts.manifest import Manifest
from mesh_runtime.contracts.outcomes import Refused
from mesh_runtime.runtime import manifest_of
from mesh_runtime.testing.ca import CertificateAuthority
from mesh_runtime.testing.gate import Gate, Mode, serving
from mesh_runtime.testing.ports import free_port
from mesh_runtime.testing.processes import RuntimeProcess, program_of, script
from mesh_runtime.testing.states import Snapshot
from mesh_runtime.testing.waiting import until
from tests.parts import Sage, WeatherAt
from tests.startup.launching import Launcher, PreparedBroker, environment, first_handshake, seconds_to_end

CONTROLLER = Manifest(module="controller", version="0", command=("none",), seat="controller")


async def after(process: RuntimeProcess, seconds: float) -> Snapshot:
    """What it says of itself once that many seconds have passed, during which it is looked at all the time."""
    ends = time.monotonic() + seconds
    return await process.states.until(lambda _: time.monotonic() >= ends, f"{seconds:g} s have passed", within=seconds + 5)


async def assert_ends_at_once(process: RuntimeProcess) -> None:
    took = await seconds_to_end(process)
    said = process.logs.text
    assert took < 1.0, said
    assert process.exit_code == 0, said
    assert "Traceback" not in said, said


async def test_with_nothing_on_the_port_it_waits_at_reach_and_ends_at_once(launch: Launcher, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    process = await launch.start(environment(tmp_path, address), script("networking"))
    pid = process.pid
    await process.states.until_at("reach", "waiting", within=15)
    shown = await after(process, 20)
    assert (process.running, process.pid, shown["pid"], process.restarts) == (True, pid, pid, 0)
    assert (shown["state"], shown["stage"], shown["cause"]["code"]) == ("waiting", "reach", "refused")
    assert address in shown["cause"]["text"]
    assert "refused" in shown["cause"]["text"].lower()
    gaps = shown["gaps"]
    assert len(gaps) >= 20
    assert statistics.median(gaps) <= 1.0, gaps
    assert max(gaps) <= 3.0, gaps
    assert statistics.mean(gaps[-5:]) > 2 * statistics.median(gaps[:3]), gaps
    await assert_ends_at_once(process)


async def test_an_unknown_name_is_waited_for_at_resolve(launch: Launcher, tmp_path: Path) -> None:
    process = await launch.start(environment(tmp_path, "broker.mesh.invalid:5671"), script("networking"))
    shown = await process.states.until(lambda one: one["attempts"] >= 3 or one["stage"] == "reach", within=25)
    assert (shown["state"], shown["stage"]) == ("waiting", "resolve")
    assert "broker.mesh.invalid" in shown["cause"]["text"]
    assert max(shown["gaps"][-2:]) - 5.0 <= 1.0, "an attempt takes what the name server takes, at most its deadline of 5 s"
    await assert_ends_at_once(process)


async def test_b03_a_silent_port_is_waited_for_at_trust_with_one_socket_at_most(launch: Launcher, tmp_path: Path) -> None:
    """B03: the port of a dead broker whose proxy accepts.

    Removal: mesh_runtime/broker/securing.py: limit.reschedule(asyncio.get_running_loop().time() + PACES[Stage.TRUST].deadline)
    Assertion: attempts >= 3
    """
    async with Gate(free_port(), mode=Mode.SILENT) as gate:
        process = await launch.start(environment(tmp_path, gate.address), script("networking"))
        await until(lambda: gate.connections, within=15)
        ends = gate.connections[0].opened_at + 10
        watched = psutil.Process(process.pid)
        most = 0
        while time.monotonic() < ends:
            most = max(most, sum(getattr(one.raddr, "port", 0) == gate.port for one in watched.net_connections("tcp")))
            await process.states.now()
            await asyncio.sleep(0.02)
        shown = process.states.last
        assert shown is not None
        attempts = shown["attempts"]
        assert attempts >= 3
        assert (shown["state"], shown["stage"], shown["cause"]["code"]) == ("waiting", "trust", "silent")
        assert gate.address in shown["cause"]["text"]
        assert most == 1
        for earlier, later in pairwise(gate.connections):
            assert earlier.closed_at is not None
            assert earlier.closed_at <= later.opened_at, "two sockets were open at once"
        await assert_ends_at_once(process)


async def test_b03_a_broker_that_is_silent_after_the_handshake_is_waited_for_at_login(launch: Launcher, tmp_path: Path) -> None:
    """B03: TLS is completed by something in front of the broker, and nobody speaks AMQP."""
    ca = CertificateAuthority()
    async with Gate(free_port(), mode=Mode.SILENT, tls=serving(ca.issue("broker.mesh"), ca)) as gate:
        process = await launch.start(environment(tmp_path, gate.address, MESH_CA_PIN=ca.pin), script("networking"))
        await process.states.until(lambda one: one["stage"] == "login", within=15)
        await process.states.until(lambda one: one["cause"] is not None, within=8)
        shown = await process.states.until(lambda one: one["attempts"] >= 2, "a second attempt", within=15)
        assert (shown["state"], shown["stage"]) == ("waiting", "login")
        assert shown["cause"]["code"] == "silent"
        assert gate.address in shown["cause"]["text"]
        assert len(gate.open_connections) <= 1
        await assert_ends_at_once(process)


@pytest.mark.timeout(180)  # a broker is started and stopped five times
async def test_when_the_broker_comes_an_ask_from_outside_is_answered_within_a_second(launch: Launcher, prepared: PreparedBroker) -> None:
    """The real entry point, asked by a controller outside; nobody answers what it asks in turn, so its answer is a refusal that says so."""
    from mesh_runtime_networking import Networking

    variables = prepared.environment("networking", manifest_of(Networking, "0"))
    outside = prepared.outside(CONTROLLER)
    machine = Machine(name="alpha", address="10.77.0.1")
    took = []
    process = await launch.start(variables, script("networking"))
    for _ in range(5):
        await process.states.until_at("reach", "waiting", within=15)
        starting = asyncio.create_task(asyncio.to_thread(prepared.broker.start, prepared.definitions()))
        accepted, _ = await asyncio.gather(first_handshake(prepared.broker.ports.amqps), outside.connected(60))
        outcome = await outside.answered(lambda: outside.asker.compose("networking", machine, 5.0))
        took.append(time.monotonic() - accepted)
        assert isinstance(outcome, Refused)
        assert "overlay-peers" in outcome.why
        assert "store-reachable-from" in outcome.why
        await starting
        await outside.close()
        await asyncio.to_thread(prepared.broker.kill)
    print(f"answered after {', '.join(f'{one:.2f}' for one in took)} s")  # noqa: T201 - shown when it fails
    assert statistics.median(took) < 1.0, took
    assert (process.running, process.restarts) == (True, 0)


@pytest.mark.timeout(90)  # it waits for 20 s before the broker is started
async def test_b01_five_runtimes_wait_each_at_its_own_pace_and_are_ready_when_the_broker_comes(
    launch: Launcher, prepared: PreparedBroker
) -> None:
    """B01: the broker's container has started and does not listen yet.

    Removal: mesh_runtime/startup/pace.py: state.attempt_number += 1
    Assertion: grown > 2 * at_first
    """
    names = ["alpha", "beta", "gamma", "delta", "epsilon"]
    variables = [prepared.environment("sage", manifest_of(Sage, "0"), name) for name in names]
    outside = prepared.outside(Manifest(module="pupil", version="0", command=("none",)))
    processes = [await launch.start(one, program_of(Sage)) for one in variables]
    pids = [process.pid for process in processes]
    for process in processes:
        await process.states.until_at("reach", "waiting", "refused", within=15)
    ends = time.monotonic() + 17
    await until(lambda: time.monotonic() >= ends, within=20)
    offsets = []
    for process in processes:
        shown = await process.states.now()
        assert shown is not None
        assert (shown["state"], shown["stage"], process.restarts) == ("waiting", "reach", 0)
        assert shown["attempts"] >= 3
        gaps = shown["gaps"]
        at_first, grown = statistics.median(gaps[:3]), statistics.mean(gaps[-5:])
        assert grown > 2 * at_first
        offsets.append(tuple(sum(gaps[:count]) for count in range(4, len(gaps))))
    assert len(set(offsets)) == len(names), "no two of them knock together"
    assert not set.intersection(*(set(one) for one in offsets))
    starting = asyncio.create_task(asyncio.to_thread(prepared.broker.start, prepared.definitions()))
    accepted = await first_handshake(prepared.broker.ports.amqps)
    for process in processes:
        await process.states.until_ready(within=accepted + 1 + 5 - time.monotonic())
    await starting
    async with outside:
        found = await outside.answered(WeatherAt(place="here"))
    assert found.by.partition("@")[2] in names
    assert ([process.pid for process in processes], [process.restarts for process in processes]) == (pids, [0] * 5)


async def test_a_signal_while_it_waits_between_two_attempts_ends_it_at_once(launch: Launcher, tmp_path: Path) -> None:
    """SIGINT is as good as SIGTERM."""
    process = await launch.start(environment(tmp_path, f"127.0.0.1:{free_port()}"), script("networking"))
    await process.states.until(lambda one: one["attempts"] >= 5, within=10)
    assert await seconds_to_end(process, signal.SIGINT) < 1.0
    assert process.exit_code == 0
