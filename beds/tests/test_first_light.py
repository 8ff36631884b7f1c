"""The bed as it is run: every step is true, each is false when it is broken and no other is, and nothing is left behind."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from beds.first_light import STEPS
from mesh_runtime.testing.waiting import until

ROOT = Path(__file__).parents[2]

#: Seconds for one run on a machine that does much else at the same time.
LIMIT = 240

pytestmark = pytest.mark.timeout(LIMIT + 30)


async def start(directory: Path, *arguments: str) -> asyncio.subprocess.Process:
    """Start ``python -m beds`` with ``directory`` as the only place for its temporary files."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "beds",
        *arguments,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(directory)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    """Its exit code, stdout and stderr."""
    try:
        async with asyncio.timeout(LIMIT):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def run(directory: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run the bed; its exit code, its document and what it said to people."""
    code, out, err = await ended(await start(directory, "run", "first-light", "--json", *arguments))
    return code, json.loads(out) if out else {}, err


def left_in(directory: Path) -> list[str]:
    """What is still there."""
    return [one.name for one in directory.iterdir()]


async def test_first_light_is_seen_and_nothing_is_left(tmp_path: Path) -> None:
    code, document, said = await run(tmp_path)
    assert {name: step["ok"] for name, step in document["steps"].items()} == dict.fromkeys(STEPS, True), said
    assert code == 0
    assert document["runtimes"].keys() == {"controller", "networking", "host"}
    for runtime in document["runtimes"].values():
        assert runtime["restarts"] == 0
        assert 0 < runtime["ready_after_broker_s"] < 10
    assert document["grantees"] == {name: {"restarts": 0, "ordered_starts": 1} for name in ("database", "motd")}
    rotated = document["steps"]["rotated"]
    assert rotated["told"] == rotated["rows"] > 0
    assert (rotated["not_sent"], rotated["failed"]) == ([], 0)
    assert "authentication failed" in rotated["old_login"]
    assert "authentication failed" in document["steps"]["revoked"]["login"]
    assert said.count("$ mesh push") == 6
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("broken", [STEPS[::2], STEPS[1::2]], ids=["the 1st, 3rd, ...", "the 2nd, 4th, ..."])
async def test_a_step_that_is_broken_is_false_and_no_other(tmp_path: Path, broken: tuple[str, ...]) -> None:
    code, document, said = await run(tmp_path, *(word for step in broken for word in ("--break", step)))
    assert {name for name, step in document["steps"].items() if not step["ok"]} == set(broken), said
    assert code == 1
    assert left_in(tmp_path) == []


async def test_a_mesh_is_held_until_it_is_told_to_end(tmp_path: Path) -> None:
    process = await start(tmp_path, "run", "first-light", "--hold")
    assert process.stdout is not None
    context = ""
    async with asyncio.timeout(LIMIT):
        while not context:
            line = (await process.stdout.readline()).decode()
            assert line, (await ended(process))[2]
            context = line.partition("export MESH_CONTEXT=")[2].strip()
    mesh = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("mesh")),
        "status",
        "--json",
        env={**os.environ, "MESH_CONTEXT": context},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    code, out, _ = await ended(mesh)
    assert code == 0
    states = json.loads(out)["runtimes"]
    assert {name: state["ready"] for name, state in states.items()} == dict.fromkeys(
        ("controller@alpha", "host@alpha", "networking@alpha"), True
    )
    plan = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("mesh")),
        "plan",
        "--json",
        env={**os.environ, "MESH_CONTEXT": context},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    code, out, _ = await ended(plan)
    assert (code, json.loads(out)["outcome"]) == (0, "planned"), "networking runs there, so it must be placed there"
    process.send_signal(signal.SIGTERM)
    code, _, said = await ended(process)
    assert code == 0, said
    assert left_in(tmp_path) == []
    assert not {str(state["pid"]) for state in states.values()} & set(left_in(Path("/proc")))


async def test_an_interrupt_takes_everything_down(tmp_path: Path) -> None:
    process = await start(tmp_path, "run", "first-light", "--json")
    assert process.stderr is not None
    async with asyncio.timeout(LIMIT):
        while b"waiting: ok" not in await process.stderr.readline():
            pass
    process.send_signal(signal.SIGINT)
    code, out, said = await ended(process)
    assert (code, out) == (130, ""), said
    assert left_in(tmp_path) == []


async def test_a_bed_that_is_killed_leaves_nothing_either(tmp_path: Path) -> None:
    process = await start(tmp_path, "run", "first-light", "--hold")
    assert process.stdout is not None
    said = b""
    async with asyncio.timeout(LIMIT):
        while b"export MESH_CONTEXT" not in said:
            said += await process.stdout.readline()
    pids = {word for word in said.decode().replace(",", " ").split() if word in left_in(Path("/proc"))}
    assert len(pids) >= 5, said.decode()
    process.kill()
    await process.communicate()
    await until(lambda: not left_in(tmp_path) and not pids & set(left_in(Path("/proc"))), "nothing is left", within=20)


async def test_what_there_is_is_listed_and_a_wrong_step_is_refused(tmp_path: Path) -> None:
    code, out, _ = await ended(await start(tmp_path, "list"))
    assert (code, out) == (0, f"first-light: {', '.join(STEPS)}\n")
    code, _, said = await ended(await start(tmp_path, "run", "first-light", "--break", "nonsense"))
    assert code == 2
    assert "taken-down" in said
