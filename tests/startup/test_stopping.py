"""The first signal stops a runtime in order and at once, at any stage; the second one ends it without another word."""

import ast
import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import psutil
import pytest
import tenacity

import mesh_runtime
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.wire import tells_queue
from mesh_runtime.runtime import ModuleRuntime
from mesh_runtime.testing.ca import CertificateAuthority
from mesh_runtime.testing.gate import Gate, Mode, serving
from mesh_runtime.testing.ports import free_port
from mesh_runtime.testing.processes import RuntimeProcess, program_of, script
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from tests.parts import Noted, Pupil, Sage, WeatherAt
from tests.raw import standing_in
from tests.startup.launching import Launcher, environment, placed, seconds_to_end
from tests.startup.parts import Hanging, Slow, Stubborn, Unready


@asynccontextmanager
async def dropping() -> AsyncIterator[int]:
    """A port on which every SYN is dropped: its backlog is full and nobody accepts."""
    with socket.socket() as listening, contextlib.ExitStack() as fillers:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        for _ in range(4):
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(address)
        yield address[1]


@dataclass(frozen=True)
class Standing:
    """How a runtime is brought to stand at a stage."""

    stage: str
    state: str = "waiting"
    code: str = ""
    cls: type[ModuleRuntime] = Sage


STANDINGS = {
    "dns": Standing("resolve"),
    "tcp refused, between attempts": Standing("reach", code="refused"),
    "tcp silent": Standing("reach", "starting"),
    "tls silent": Standing("trust", code="silent"),
    "tls silent, in the first attempt": Standing("trust", "starting"),
    "amqp silent, in the first attempt": Standing("login", "starting"),
    "login refused, asleep for ten seconds": Standing("login", "blocked", "login-refused"),
    "topology: a foreign queue": Standing("topology", "blocked", "foreign-queue"),
    "topology: the broker is frozen": Standing("topology", "starting"),
    "prepare raises": Standing("prepare", code="ConnectionRefusedError", cls=Unready),
    "prepare hangs": Standing("prepare", "starting", cls=Hanging),
    "prepare swallows its cancellation, in a thread": Standing("prepare", "starting", cls=Stubborn),
    "proof: another consumer": Standing("proof", code="other-consumer"),
    "ready": Standing("ready", "ready"),
}


@pytest.mark.parametrize("name", STANDINGS)
async def test_b33_sigterm_ends_it_at_every_stage_and_in_every_sleep(
    launch: Launcher, runtimes: Runtimes, tmp_path: Path, name: str
) -> None:
    """B33: a retry swallows the cancellation.

    Removal: mesh_runtime/entrypoint.py: self._wake()
    Assertion: took < 2.0
    """
    standing = STANDINGS[name]
    async with brought_to(launch, runtimes, tmp_path, name) as process:
        await process.states.until_at(standing.stage, standing.state, standing.code, within=15)
        took = await seconds_to_end(process)
        said = process.logs.text
        assert took < 2.0, said
        assert process.exit_code == 0, said
        assert not any("Traceback" in line.text for line in process.logs.lines if "a stage raised" not in line.text), said


@asynccontextmanager
async def brought_to(launch: Launcher, runtimes: Runtimes, tmp_path: Path, name: str) -> AsyncIterator[RuntimeProcess]:
    """The runtime, on its way to that standing."""
    async with contextlib.AsyncExitStack() as stack:
        more: dict[str, str] = {}
        match name:
            case "dns":
                more["MESH_BROKER"] = "broker.mesh.invalid:5671"
            case "tcp refused, between attempts":
                more["MESH_BROKER"] = f"127.0.0.1:{free_port()}"
            case "tcp silent":
                more["MESH_BROKER"] = f"127.0.0.1:{await stack.enter_async_context(dropping())}"
            case "tls silent" | "tls silent, in the first attempt":
                more["MESH_BROKER"] = (await stack.enter_async_context(Gate(free_port(), mode=Mode.SILENT))).address
            case "amqp silent, in the first attempt":
                ca = CertificateAuthority()
                gate = Gate(free_port(), mode=Mode.SILENT, tls=serving(ca.issue("broker.mesh"), ca))
                more |= {"MESH_BROKER": (await stack.enter_async_context(gate)).address, "MESH_CA_PIN": ca.pin}
            case "login refused, asleep for ten seconds":
                more["MESH_CREDENTIALS"] = environment(tmp_path, "127.0.0.1:1", module="sage")["MESH_CREDENTIALS"]
            case "topology: a foreign queue":
                await runtimes.management.put_queue(runtimes.vhost, tells_queue("sage@alpha"), {"x-queue-type": "classic"})
            case "proof: another consumer":
                await (await stack.enter_async_context(runtimes.run(Sage))).ready()
        variables = await placed(runtimes, STANDINGS[name].cls, **more)
        if name == "proof: another consumer":  # the login of the one that runs already got a new password; both have it in the same file
            assert runtimes.directory / "credentials" / "sage@alpha" == Path(variables["MESH_CREDENTIALS"])
        if name == "topology: the broker is frozen":
            gate = await stack.enter_async_context(Gate(runtimes.broker.ports.amqps))
            variables["MESH_BROKER"] = gate.address
            process = await launch.start(variables, program_of(Sage))
            await _frozen_at_topology(process, gate)
        else:
            process = await launch.start(variables, program_of(STANDINGS[name].cls))
        yield process


async def _frozen_at_topology(process: RuntimeProcess, gate: Gate) -> None:
    """Freeze the link at the very moment at which it is seen to be past the login."""
    await until(lambda: len(gate.connections) == 2, within=10)
    working = gate.connections[1]
    await until(lambda: working.up.count > 1200, within=5, every=0)
    await gate.become(Mode.FREEZE)


def _accepts_cancellation(predicate: object) -> bool:
    """Whether tenacity would try again after a cancellation."""
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.set_exception((asyncio.CancelledError, asyncio.CancelledError(), None))
    return bool(predicate(state))  # type: ignore[operator]  # what stands after `retry=` is a predicate


def _predicates(source: str) -> list[str]:
    """The expressions of a source that say what tenacity is to try again: ``retry=`` and every ``retry_...(...)``."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found += [ast.unparse(word.value) for word in node.keywords if word.arg == "retry"]
            if name.startswith("retry_") and not name.startswith("retry_state"):
                found.append(ast.unparse(node))
    return found


def _swallowed(source: str) -> list[str]:
    scope = {
        "tenacity": tenacity,
        "asyncio": asyncio,
        **{name: getattr(tenacity, name) for name in dir(tenacity) if name.startswith("retry")},
    }
    return [one for one in _predicates(source) if _accepts_cancellation(eval(one, scope))]  # noqa: S307 - our own sources


@pytest.mark.parametrize(
    ("source", "swallows"),
    [
        ("tenacity.AsyncRetrying(retry=tenacity.retry_if_not_exception_type(ValueError))", True),
        ("tenacity.AsyncRetrying(retry=tenacity.retry_if_exception(lambda e: True))", True),
        ("retry_if_exception_type(BaseException)", True),
        ("tenacity.AsyncRetrying(retry=tenacity.retry_if_exception_type(Exception))", False),
    ],
)
def test_b33_the_search_for_predicates_finds_those_that_swallow_a_cancellation(source: str, swallows: bool) -> None:
    assert bool(_swallowed(source)) is swallows


def test_b33_no_predicate_of_the_code_base_accepts_a_cancellation() -> None:
    roots = [Path(mesh_runtime.__file__).parent, *(Path(__file__).parents[2] / "modules").glob("*/mesh_runtime_*")]
    files = [file for root in roots for file in root.rglob("*.py")]
    assert len(files) > 50
    assert {str(file): swallowed for file in files if (swallowed := _swallowed(file.read_text()))} == {}
    default = tenacity.AsyncRetrying().retry
    assert not _accepts_cancellation(default)


# ---------------------------------------------------------------------------------------------- as PID 1


@cache
def as_pid_1() -> tuple[str, ...]:
    """A prefix that makes a command the first process of a PID namespace.

    Where the kernel lets nobody make one, its essence: a process for which SIGTERM does nothing until it says otherwise.
    """
    unshare = shutil.which("unshare")
    for rights in ((), ("--user", "--map-root-user")):
        prefix = (unshare or "unshare", *rights, "-pf", "--mount-proc", "--kill-child=SIGKILL")
        if unshare and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
            return prefix
    ignoring = "import os, signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    return (sys.executable, "-c", ignoring)


def first_process(process: RuntimeProcess) -> psutil.Process:
    """The one that is PID 1: the only child of what made its namespace, or what was started itself."""
    children = psutil.Process(process.pid).children()
    return children[0] if children else psutil.Process(process.pid)


async def seconds_to_end_of_pid_1(process: RuntimeProcess) -> float:
    began = time.monotonic()
    os.kill(first_process(process).pid, signal.SIGTERM)
    try:
        await process.ended(10)
    except TimeoutError:
        return float("inf")
    return time.monotonic() - began


WHILE: dict[str, Callable[[RuntimeProcess], object]] = {
    "0.2 s after the start": lambda process: None,
    "waiting": lambda process: process.states.until_at("reach", "waiting", within=10),
    "ready": lambda process: process.states.until_ready(within=10),
    "handling": lambda process: until(lambda: (process.states.directory / "answering").exists(), within=10),
}


@pytest.mark.parametrize("what", WHILE)
async def test_b35_as_pid_1_it_stops_when_told(launch: Launcher, runtimes: Runtimes, what: str) -> None:
    """B35: ten seconds to stop, since PID 1 ignores SIGTERM unless it has a handler.

    Removal: mesh_runtime/entrypoint.py: signals.install()
    Assertion: took < 2.0
    """
    away = {"MESH_BROKER": f"127.0.0.1:{free_port()}"} if what == "waiting" else {}
    variables = await placed(runtimes, Slow, **away)
    command = [*as_pid_1(), *(script("networking") if what.startswith("0.2") else program_of(Slow))]
    async with runtimes.run(Pupil, "beta") as pupil:
        await pupil.ready()
        process = await launch.start(variables, command)
        asking = None
        if what.startswith("0.2"):
            began = time.monotonic()
            await until(lambda: _handles_sigterm(process) or time.monotonic() > began + 5, within=6, every=0.001)
            await until(lambda: time.monotonic() >= began + 0.2, every=0.001)
        elif what == "handling":
            await process.states.until_ready(within=10)
            asking = asyncio.create_task(pupil.module.ask(WeatherAt(place="here")))
        if (reached := WHILE[what](process)) is not None:
            await reached  # type: ignore[misc]  # what is not nothing is awaited
        took = await seconds_to_end_of_pid_1(process)
        assert took < 8.0, process.logs.text
        assert process.exit_code == 0, process.logs.text
        if asking is not None:
            assert (await asking).value.sky == "clear at here", "what was at work was finished first"


def _handles_sigterm(process: RuntimeProcess) -> bool:
    """Whether PID 1 has a handler: a loaded machine may need more than 0.2 s for what takes a few hundredths of CPU."""
    with contextlib.suppress(psutil.Error, OSError):
        first = first_process(process)
        if first.pid != process.pid or as_pid_1()[0] == sys.executable:
            return _catches_sigterm(first.pid)
    return False


def _catches_sigterm(pid: int) -> bool:
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


async def test_b35_the_handlers_stand_before_anything_heavy_is_imported(launch: Launcher, tmp_path: Path) -> None:
    """A signal before that is lost on PID 1. The best of three: others run on the same cores."""
    spent = []
    for _ in range(3):
        process = await launch.start(environment(tmp_path, f"127.0.0.1:{free_port()}"), script("networking"))
        await until(partial(_catches_sigterm, process.pid), within=5, every=0)
        times = psutil.Process(process.pid).cpu_times()
        spent.append(times.user + times.system)
        assert await seconds_to_end(process) < 3.0
        assert process.exit_code == 0
    assert min(spent) < 0.1, spent


@pytest.mark.timeout(60)  # it takes what an engine gives
async def test_at_its_worst_a_stop_ends_before_an_engine_kills(launch: Launcher, runtimes: Runtimes) -> None:
    """A tell at work that does not end, over a link that is frozen: every step of the stop takes its whole limit."""
    async with Gate(runtimes.broker.ports.amqps) as gate:
        process = await launch.on(runtimes, Slow, MESH_BROKER=gate.address, MESH_HEARTBEAT="30")
        await process.states.until_ready(within=15)
        async with runtimes.run(Pupil, "beta") as pupil:
            await pupil.ready()
            await pupil.module.tell(Noted(id=1))
            await until(lambda: (process.states.directory / "handling").exists())
            await gate.become(Mode.FREEZE)
            took = await seconds_to_end(process, limit=15)
            assert process.exit_code == 0
            assert process.logs.records(event="work was cut short")
            assert 7.0 < took < 10.0, f"it took {took:.1f} s"


async def test_b35_a_second_signal_leaves_at_once_and_what_was_at_work_is_back_in_its_queue(launch: Launcher, runtimes: Runtimes) -> None:
    """Not lost, and not parked: whoever starts next is told it."""
    process = await launch.start(await placed(runtimes, Slow), [*as_pid_1(), *program_of(Slow)])
    queue, parked = wire.tells_queue("sage@alpha"), wire.parked_queue("sage@alpha")
    async with runtimes.run(Pupil, "beta") as pupil:
        await pupil.ready()
        await process.states.until_ready()
        await pupil.module.tell(Noted(id=1), to=Identity("sage", "alpha"))
        await until(lambda: (process.states.directory / "handling").exists())
        first = first_process(process)
        first.send_signal(signal.SIGTERM)
        await process.states.until(lambda one: one["draining"], within=3)
        await process.logs.until(event="draining")
        began = time.monotonic()
        first.send_signal(signal.SIGTERM)
        code = await process.ended(10)
        assert time.monotonic() - began < 3.0
        assert code not in (0, 137, -9)

        async def ready_again() -> bool:
            row = await runtimes.management.queue(runtimes.vhost, queue)
            return bool(row.get("messages_ready") == 1 and row.get("messages_unacknowledged") == 0)

        await until(ready_again, "the tell is back in its queue", within=10)
        assert await standing_in(runtimes, "sage@alpha", parked) == 0
        (process.states.directory / "handled").touch()
        again = await launch.start(process.environment, program_of(Slow))
        await again.states.until_ready(within=15)

        async def gone() -> bool:
            return bool((await runtimes.management.queue(runtimes.vhost, queue)).get("messages") == 0)

        await until(gone, "it is handled by who starts next", within=10)
        assert await again.stop() == 0
