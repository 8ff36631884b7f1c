"""Each refusal of the broker has its own stage and cause: shown loudly, tried at a slow pace, over once it is mended from outside."""

from itertools import pairwise
from pathlib import Path

import pytest

from mesh_runtime.contracts import wire
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.rights import definitions
from mesh_runtime.runtime import manifest_of
from mesh_runtime.testing.gate import Gate
from mesh_runtime.testing.processes import RuntimeProcess, program_of
from mesh_runtime.testing.running import Runtimes
from tests.parts import Sage, WeatherAt
from tests.startup.launching import Launcher, Outside, environment, write_credentials

#: Machine (the fault's name) to stage, kind and code.
FAULTS = {
    "wrong-password": ("login", "blocked", "login-refused"),
    "no-vhost": ("login", "blocked", "no-vhost"),
    "no-permission": ("login", "blocked", "no-permission"),
    "few-permissions": ("topology", "blocked", "no-permission"),
    "foreign-queue": ("topology", "blocked", "foreign-queue"),
}


def made(vhost: str, machine: str) -> dict[str, object]:
    """What must stand at the broker for a sage on ``machine``, without the virtual host itself."""
    rows = definitions(vhost, {Identity("sage", machine): manifest_of(Sage, "0")})
    return {name: some for name, some in rows.items() if name != "vhosts"}


@pytest.mark.timeout(90)  # five processes start at once, and who is blocked looks again after 10 to 15 s
async def test_each_refusal_has_its_own_cause_and_is_over_once_it_is_mended(launch: Launcher, runtimes: Runtimes, tmp_path: Path) -> None:
    management, vhost = runtimes.management, runtimes.vhost
    other = f"{vhost}-other"
    processes: dict[str, RuntimeProcess] = {}
    passwords: dict[str, str] = {}
    for fault in FAULTS:
        who = Identity("sage", fault)
        passwords[fault] = ((await runtimes.login(who, manifest_of(Sage, "0"))) / "password").read_text()
    write_credentials(tmp_path / "wrong", "sage@wrong-password", "not the password")
    await management.delete_permissions(vhost, "sage@no-permission")
    await management.put_permissions(vhost, "sage@few-permissions", configure="^$", write="^$", read="^$")
    foreign = wire.tells_queue("sage@foreign-queue")
    await management.put_queue(vhost, foreign, {"x-queue-type": "classic"})
    for fault in FAULTS:
        variables = {**_variables(runtimes, fault), "MESH_CREDENTIALS": str(runtimes.directory / "credentials" / f"sage@{fault}")}
        if fault == "wrong-password":
            variables["MESH_CREDENTIALS"] = str(tmp_path / "wrong")
        if fault == "no-vhost":
            variables["MESH_VHOST"] = other
        processes[fault] = await launch.start(variables, program_of(Sage))
    pids = {fault: process.pid for fault, process in processes.items()}
    try:
        for fault, process in processes.items():
            stage, state, code = FAULTS[fault]
            shown = await process.states.until_at(stage, state, within=15)
            assert shown["cause"]["code"] == code, fault
            named = {"few-permissions": "sage@few-permissions", "foreign-queue": foreign, "no-vhost": other}.get(fault, f"sage@{fault}")
            assert named in shown["cause"]["text"], fault
            errors = process.logs.records(level="error", event="blocked")
            assert [one["code"] for one in errors] == [code], "said once, as an error"
        write_credentials(tmp_path / "wrong", "sage@wrong-password", passwords["wrong-password"])
        await management.put_vhost(other)
        await management.put_definitions(made(other, "no-vhost"))
        await management.put_definitions(made(vhost, "no-permission"))
        await management.put_definitions(made(vhost, "few-permissions"))
        await management.delete_queue(vhost, foreign)
        for fault, process in processes.items():
            await process.states.until_ready(within=30)
            assert (process.pid, process.restarts) == (pids[fault], 0), fault
            assert await process.stop() == 0
    finally:
        for process in processes.values():
            await process.kill()
        await management.delete_vhost(other)


def _variables(runtimes: Runtimes, machine: str) -> dict[str, str]:
    return {
        **environment(runtimes.directory, runtimes.broker.address, machine, "sage"),
        "MESH_BROKER_NAME": runtimes.broker.name,
        "MESH_VHOST": runtimes.vhost,
        "MESH_CA_PIN": runtimes.broker.ca.pin,
    }


@pytest.mark.timeout(120)  # four refusals in a row, each mended at the next attempt, 10 to 15 s later
async def test_b10_a_broker_that_is_still_loading_is_asked_at_a_slow_pace_until_it_knows_the_login(
    launch: Launcher, runtimes: Runtimes, tmp_path: Path
) -> None:
    """B10: no user, then no virtual host, then no permission in it, then none for its queues.

    Removal: mesh_runtime/startup/pace.py: gap = self._uniform(*BLOCKED_GAP)
    Assertion: attempts_a_minute <= 6
    """
    management, user, vhost = runtimes.management, "sage@late", f"{runtimes.vhost}-late"
    credentials = write_credentials(tmp_path / "late", user, "a password that comes later")
    ca = {"MESH_CA_PIN": "", "MESH_CA_FILE": str(runtimes.broker.ca.write(tmp_path / "ca.pem"))}  # one connection an attempt
    async with Gate(runtimes.broker.ports.amqps) as gate:
        variables = {**_variables(runtimes, "late"), **ca, "MESH_BROKER": gate.address, "MESH_VHOST": vhost}
        process = await launch.start({**variables, "MESH_CREDENTIALS": str(credentials)}, program_of(Sage))
        states = process.states
        try:
            shown = await states.until_at("login", "blocked", within=10)
            assert (shown["cause"]["code"], user in shown["cause"]["text"]) == ("login-refused", True)
            await management.put_user(user, "a password that comes later")
            shown = await states.until_at("login", "blocked", "no-vhost", within=20)
            assert vhost in shown["cause"]["text"]
            await management.put_vhost(vhost)
            shown = await states.until_at("login", "blocked", "no-permission", within=20)
            assert vhost in shown["cause"]["text"]
            await management.put_permissions(vhost, user, configure="^$", write="^$", read="^$")
            shown = await states.until_at("topology", "blocked", "no-permission", within=20)
            assert f"replies.{user}." in shown["cause"]["text"], "the resource is named"
            knocks = [one.opened_at for one in gate.connections]
            attempts_a_minute = max(60 / (later - earlier) for earlier, later in pairwise(knocks))
            assert attempts_a_minute <= 6
            assert len(knocks) == 4, "one for each state"
            await management.put_definitions(made(vhost, "late"))
            await states.until_ready(within=20)
            assert len(gate.connections) == 4, "the session that stands is gone on with"
            assert (process.restarts, await process.stop()) == (0, 0)
        finally:
            await process.kill()
            await management.delete_vhost(vhost)
            await management.delete_user(user)


async def test_an_exchange_that_is_not_there_yet_is_waited_for_at_topology(launch: Launcher, runtimes: Runtimes) -> None:
    await runtimes.login(Identity("sage", "alpha"), manifest_of(Sage, "0"))
    await runtimes.management.delete_exchange(runtimes.vhost, wire.REPLIES)
    variables = {**_variables(runtimes, "alpha"), "MESH_CREDENTIALS": str(runtimes.directory / "credentials" / "sage@alpha")}
    process = await launch.start(variables, program_of(Sage))
    shown = await process.states.until_at("topology", "waiting", within=10)
    assert (shown["cause"]["code"], wire.REPLIES in shown["cause"]["text"]) == ("no-exchange", True)
    await runtimes.management.put_exchange(runtimes.vhost, wire.REPLIES)
    await process.states.until_ready(within=10)
    assert (process.restarts, await process.stop()) == (0, 0)


async def test_credentials_that_are_not_there_yet_are_waited_for(launch: Launcher, runtimes: Runtimes, tmp_path: Path) -> None:
    """They come one after the other, the second in two pieces."""
    real = await runtimes.login(Identity("sage", "alpha"), manifest_of(Sage, "0"))
    later = tmp_path / "later"
    process = await launch.start({**_variables(runtimes, "alpha"), "MESH_CREDENTIALS": str(later)}, program_of(Sage))
    shown = await process.states.until_at("login", "waiting", "no-credentials", within=10)
    assert (shown["cause"]["text"], shown["on"]) == (f"{later / 'username'} is not there yet", str(later / "username"))
    later.mkdir()
    (later / "username").write_text("sage@alpha\n")
    (later / "password").touch()
    shown = await process.states.until(lambda one: "is empty" in one["cause"]["text"], within=10)
    assert shown["cause"]["text"] == f"{later / 'password'} is empty"
    (later / "password").write_text((real / "password").read_text() + "\n")
    await process.states.until_ready(within=15)
    assert (process.restarts, await process.stop()) == (0, 0)


async def test_credentials_that_were_rotated_are_read_afresh(launch: Launcher, runtimes: Runtimes) -> None:
    """A new password does not end the session that stands; the next one needs it, and the file is looked at again for each attempt."""
    credentials = await runtimes.login(Identity("sage", "alpha"), manifest_of(Sage, "0"))
    async with Gate(runtimes.broker.ports.amqps) as gate, await Outside.of(runtimes) as outside:
        variables = {**_variables(runtimes, "alpha"), "MESH_CREDENTIALS": str(credentials), "MESH_BROKER": gate.address}
        process = await launch.start(variables, program_of(Sage))
        await process.states.until_ready()
        await runtimes.management.put_user("sage@alpha", "the next password")
        assert (await outside.answered(WeatherAt(place="here"))).revision == 7
        (credentials / "password").write_text("the next password")
        gate.cut()
        await process.states.until(lambda one: one["sessions"] == 2 and one["ready"], "a second session", within=8)
        assert (await outside.answered(WeatherAt(place="here"))).revision == 7
        assert "the next password" not in process.logs.text
        assert (process.restarts, await process.stop()) == (0, 0)
