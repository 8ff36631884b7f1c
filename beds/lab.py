"""The lab of one machine: a mesh's processes as an operator would start them, a real broker, and the command ``mesh``.

Everything stands under the broker's temporary directory. What the lab starts it ends, whatever happens to the bed; should the bed itself be
killed, the kernel ends its runtimes, and the broker's supervisor the broker, with that directory.
"""

import asyncio
import hashlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from beds.outside import bed_logins
from mesh_runtime.contracts import wire
from mesh_runtime.testing.broker import BrokerOptions, PrivateBroker
from mesh_runtime.testing.ca import Leaf
from mesh_runtime.testing.founding import BrokerPlace, FoundedMesh, found_mesh
from mesh_runtime.testing.installation import Installation
from mesh_runtime.testing.management import Management
from mesh_runtime.testing.processes import RuntimeProcess, script

ROOT = Path(__file__).resolve().parents[1]

MACHINE = "alpha"
BROKER_NAME = "broker.mesh"

#: Seconds that one command of the operator may take: above its own limits.
COMMAND_LIMIT = 60.0


@dataclass(frozen=True, slots=True)
class Ran:
    """One command of the operator: how it ended, and all that it printed."""

    command: str
    code: int
    output: str


class Lab:
    """A founded mesh, its broker and its runtimes. With ``async with``: nothing runs at first, and nothing is left at the end."""

    def __init__(self, modules: Iterable[str], installation: Installation | None = None) -> None:
        """``installation`` is the RabbitMQ that runs; by default this machine's. Raises NoBroker."""
        self.broker = PrivateBroker(BrokerOptions(installation=installation or Installation(), name=BROKER_NAME))
        self.directory = self.broker.directory / "bed"
        place = BrokerPlace(address=self.broker.address, name=BROKER_NAME)
        self.founded: FoundedMesh = found_mesh(self.directory, place, machine=MACHINE, modules=tuple(modules), extra=bed_logins(MACHINE))
        if self.founded.leaf is not None and self.founded.authority is not None:
            leaf = self.founded.leaf
            self.broker.replace_certificate(Leaf(leaf.certificate, leaf.key), self.founded.authority.pem)
        self.runtimes = {name: RuntimeProcess(self.founded.environment(name, PYTHONPATH=str(ROOT)), script(name)) for name in modules}
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for runtime in self.runtimes.values():
            await self._open.enter_async_context(runtime.states)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.take_down()

    async def take_down(self) -> dict[str, int | None]:
        """End everything, runtimes first; their exit codes. Repeatable."""
        try:
            await asyncio.gather(*(one.stop() for one in self.runtimes.values() if one.running))
        finally:
            await self._open.aclose()
            await asyncio.to_thread(self.broker.dispose)
        return {name: one.exit_code for name, one in self.runtimes.items()}

    # ------------------------------------------------------------------------------------------------ broker and runtimes

    async def start_broker(self) -> None:
        """Start it; its definitions are there before its port accepts."""
        await asyncio.to_thread(self.broker.start, self.founded.definitions())

    async def start_runtimes(self) -> None:
        """Start those that do not run yet."""
        await asyncio.gather(*(one.start() for one in self.runtimes.values() if not one.running))

    async def restart(self, name: str, command: list[str]) -> None:
        """End one runtime in order and start it with this program, if it is not the one that runs."""
        runtime = self.runtimes[name]
        if runtime.running and runtime.command == command:
            return
        await runtime.stop()
        await runtime.start(command)
        await runtime.states.until_ready()

    async def all_ready(self, within: float = 15.0) -> None:
        """Wait until every runtime is ready."""
        await asyncio.gather(*(one.states.until_ready(within) for one in self.runtimes.values()))

    # ------------------------------------------------------------------------------------------------ the operator

    async def mesh(self, *arguments: str) -> Ran:
        """Run the operator's command ``mesh``; its output is stdout and stderr as they come."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MESH_")}
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("mesh")),
            *arguments,
            env={**inherited, "MESH_CONTEXT": str(self.founded.context), "COLUMNS": "200"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(COMMAND_LIMIT):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Ran(" ".join(["mesh", *arguments]), process.returncode or 0, output.decode(errors="replace"))

    # ------------------------------------------------------------------------------------------------ looking and breaking

    def files(self) -> dict[str, str]:
        """Path under the host's root to the SHA-256 of each file there, as they are on disk now."""
        root = self.founded.host_root
        found = sorted(one for one in root.rglob("*") if one.is_file())
        return {f"/{one.relative_to(root)}": hashlib.sha256(one.read_bytes()).hexdigest() for one in found}

    async def unbind_lookup(self, type_name: str) -> None:
        """Take the answerer of a lookup away: nobody is bound to its key any more."""
        await self._bindings("rabbit_binding:remove(B, Me)", wire.ask_key("lookup", type_name))

    async def bind_lookup(self, type_name: str, beside: str) -> None:
        """Put it back: bind whoever answers the lookup ``beside``."""
        key = wire.ask_key("lookup", type_name)
        await self._bindings(f'rabbit_binding:add(setelement(3, B, <<"{key}">>), Me)', wire.ask_key("lookup", beside))

    async def _bindings(self, act: str, key: str) -> None:
        """Do this to each binding B of ``mesh.asks`` under ``key``, inside the server: its management API leaves exclusive queues alone."""
        source = f'{{resource, <<"{self.founded.broker.vhost}">>, exchange, <<"{wire.ASKS}">>}}'
        bindings = f'B <- rabbit_binding:list_for_source({source}), element(3, B) =:= <<"{key}">>'
        await asyncio.to_thread(self.broker.evaluate, f'Me = <<"bed">>, [ok = {act} || {bindings}].')

    @asynccontextmanager
    async def management(self) -> AsyncIterator[Management]:
        """The broker's management API."""
        async with Management(self.broker.management_url, *self.broker.admin) as management:
            yield management


def left_of(pids: Iterable[int], directories: Iterable[Path], port: int) -> dict[str, list[object]]:
    """What is still there of these processes, directories and this port of loopback."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        taken = probe.connect_ex(("127.0.0.1", port)) == 0
    return {
        "processes": [pid for pid in pids if Path(f"/proc/{pid}").exists()],
        "directories": [str(one) for one in directories if one.exists()],
        "ports": [port] if taken else [],
    }
