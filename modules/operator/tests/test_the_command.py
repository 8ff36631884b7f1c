"""The command as operators run it, against a real broker: a responder stands for the controller."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from mesh_runtime.contracts import Identity, Missing, Reason, Refused
from mesh_runtime.contracts.operating import MachineOutcome, Place, Placed, Plan, Planned, Push, Pushed, Remove, Removed
from mesh_runtime.health.serving import serve_state
from mesh_runtime.testing.founding import FoundedMesh, FoundMesh
from mesh_runtime.testing.responder import responder_manifest
from mesh_runtime.testing.stating import Answering, Failing
from mesh_runtime_operator.exits import Exit

if TYPE_CHECKING:
    from conftest import Command, Responding

CONTROLLER = Identity("controller", "stand-in")
ANSWERS: dict[type, Answering] = {
    Place: Placed(revision=2, changed=True),
    Remove: Removed(revision=3),
    Plan: Planned(machines=(), fingerprint="f00"),
    Push: Pushed(machines=(MachineOutcome(machine="alpha", verdict="in-force", generation=1),)),
}


@pytest_asyncio.fixture
async def mesh_of_one(founding: FoundMesh) -> FoundedMesh:
    return await founding(modules=(), extra={CONTROLLER: responder_manifest(CONTROLLER, ANSWERS)})


async def test_each_act_reaches_the_controller_under_the_operators_login(
    command: "Command", mesh_of_one: FoundedMesh, responding: "Responding", tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_text("PEM")
    async with responding(mesh_of_one, CONTROLLER, ANSWERS) as asked:
        code, out, _ = await command(mesh_of_one, "place", "store", "alpha", "address=s.mesh:5000", f"ca={tmp_path / 'ca.pem'}")
        assert (code, out) == (0, "store@alpha is placed, at revision 2; a push gives it effect\n")
        code, out, _ = await command(mesh_of_one, "push", "alpha", "--plan", "f00", "--remove", "files/a", "--timeout", "3", "--json")
        assert (code, json.loads(out)["machines"][0]["verdict"]) == (0, "in-force")
        assert (await command(mesh_of_one, "remove", "store", "alpha"))[0] == 0
        assert (await command(mesh_of_one, "plan"))[:2] == (0, "fingerprint f00\n")
    assert [one.ask for one in asked.asked] == [
        Place(module="store", machine="alpha", parameters={"address": "s.mesh:5000", "ca": "PEM"}),
        Push(machines=("alpha",), plan="f00", remove=("files/a",), patience=3.0),
        Remove(module="store", machine="alpha"),
        Plan(),
    ]
    assert {one.sender for one in asked.asked} == {"operator@alpha"}


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (
            Refused(code="unknown-machine", why="the mesh has no machine beta", by="controller@alpha"),
            Exit.UNKNOWN_MACHINE,
            "no machine beta",
        ),
        (Refused(code="nothing-to-do", why="nothing is placed"), Exit.NOTHING_TO_DO, "nothing is placed"),
        (
            Refused(code="x", why="it rests on silence", unanswered=(Missing(question="who()", reason=Reason.LATE),)),
            Exit.REFUSED,
            "unanswered: who(): late",
        ),
        (Failing.ERROR, Exit.REFUSED, "RuntimeError"),
        (Failing.MALFORMED, Exit.UNANSWERED, "malformed"),
        (Failing.NOBODY, Exit.NOBODY, "no controller answers"),
    ],
)
async def test_each_way_of_ending_has_its_exit(
    command: "Command", mesh_of_one: FoundedMesh, responding: "Responding", answer: Answering, code: Exit, words: str
) -> None:
    async with responding(mesh_of_one, CONTROLLER, ANSWERS) as asked:
        await asked.say(Push, answer)
        ended, out, err = await command(mesh_of_one, "push")
    assert (ended, out) == (code, "")
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("push", "--wait", "0.2"), Exit.NO_SESSION),
        (("place", "store", "alpha", "nonsense"), Exit.USAGE),
        (("push", "--bogus"), Exit.USAGE),
        (("push", "--timeout", "inf"), Exit.USAGE),
        (("status",), Exit.UNREADABLE),
    ],
)
async def test_with_json_there_is_one_document_also_where_there_is_no_outcome(
    command: "Command", mesh_of_one: FoundedMesh, arguments: tuple[str, ...], code: Exit
) -> None:
    (mesh_of_one.context / "broker").write_text("127.0.0.1:1\n")
    (mesh_of_one.context / "state-root").write_text("/nowhere\n")
    ended, out, err = await command(mesh_of_one, *arguments, "--json")
    document = json.loads(out)
    assert (ended, document["outcome"], document["exit"]) == (code, "ended", code)
    assert document["why"]
    assert err


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Children can be interrupted: a shell starts what it puts into the background with SIGINT ignored, and that is inherited."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
async def test_interrupted_it_says_what_is_unknown_and_has_its_own_exit(mesh_of_one: FoundedMesh) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (mesh_of_one.context / "broker").write_text(f"127.0.0.1:{silent.getsockname()[1]}\n")
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("mesh")),
            *("push", "--json", "--wait", "60"),
            env=os.environ | {"MESH_CONTEXT": str(mesh_of_one.context)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        silent.settimeout(20)
        dialled, _ = await asyncio.to_thread(silent.accept)
        with dialled:
            process.send_signal(signal.SIGINT)
            out, err = await process.communicate()
    assert process.returncode == Exit.INTERRUPTED
    assert json.loads(out)["exit"] == Exit.INTERRUPTED
    assert b"whether it acted is unknown" in err


async def test_a_stdout_that_takes_no_more_is_said(mesh_of_one: FoundedMesh) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("mesh")),
            *("status", "--json"),
            env=os.environ | {"MESH_CONTEXT": str(mesh_of_one.context)},
            stdout=full,
            stderr=asyncio.subprocess.PIPE,
        )
    finally:
        os.close(full)
    _, err = await process.communicate()
    assert process.returncode == Exit.UNWRITTEN
    assert err.decode() == "mesh: stdout took no more; what was asked is done all the same: No space left on device\n"


async def test_a_broker_that_is_not_there_is_waited_for_no_longer_than_told(command: "Command", mesh_of_one: FoundedMesh) -> None:
    (mesh_of_one.context / "broker").write_text("127.0.0.1:1\n")
    code, _, err = await command(mesh_of_one, "push", "--wait", "3")
    assert code == Exit.NO_SESSION
    assert "within 3 s: reach: " in err
    assert "127.0.0.1:1" in err


async def test_a_refused_login_ends_it_at_once(command: "Command", mesh_of_one: FoundedMesh) -> None:
    (mesh_of_one.context / "credentials" / "password").write_text("another\n")
    code, _, err = await command(mesh_of_one, "push", "--wait", "60")
    assert code == Exit.NO_SESSION
    assert "somebody must act: login: " in err


async def test_status_needs_no_broker(command: "Command", mesh_of_one: FoundedMesh) -> None:
    (mesh_of_one.state_root / "web@alpha").mkdir()
    (mesh_of_one.state_root / "not an identity").mkdir()
    snapshot = {"identity": "host@alpha", "state": "waiting", "stage": "reach", "cause": {"text": "refused"}, "since": "s", "attempts": 4}
    async with serve_state(mesh_of_one.state_root / "host@alpha", lambda: snapshot):
        code, out, _ = await command(mesh_of_one, "status", "--json")
        assert code == 0
        states = json.loads(out)["runtimes"]
        assert states["host@alpha"] == snapshot
        assert states["web@alpha"]["state"] == "not running"
        assert list(states) == ["host@alpha", "web@alpha"]
        code, out, _ = await command(mesh_of_one, "status")
    assert code == 0
    assert "not running" in out


async def test_status_without_a_state_root_says_so(command: "Command", mesh_of_one: FoundedMesh) -> None:
    (mesh_of_one.context / "state-root").write_text("/nowhere\n")
    assert (await command(mesh_of_one, "status"))[0] == Exit.UNREADABLE
    code, _, err = await command(None, "status")
    assert (code, "MESH_CONTEXT is not set" in err) == (Exit.NO_CONTEXT, True)


async def test_a_wrong_parameter_is_a_wrong_command_line(command: "Command", mesh_of_one: FoundedMesh) -> None:
    code, _, err = await command(mesh_of_one, "place", "store", "alpha", "nonsense")
    assert (code, "'nonsense' is no parameter" in err) == (Exit.USAGE, True)
