"""The lab of one machine: a mesh's processes as an operator would start them, a real broker and PostgreSQL, and the command ``mesh``.

Everything stands under the temporary directories of broker and database. What the lab starts it ends, whatever happens to the bed; should
the bed itself be killed, the kernel ends its runtimes, and their supervisors the servers, with those directories.
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

from beds import greeting
from beds.outside import bed_logins
from mesh_runtime.contracts import Identity, wire
from mesh_runtime.testing.broker import BrokerOptions, PrivateBroker
from mesh_runtime.testing.ca import Leaf
from mesh_runtime.testing.founding import BrokerPlace, FoundedMesh, found_mesh
from mesh_runtime.testing.installation import Installation
from mesh_runtime.testing.management import Management
from mesh_runtime.testing.postgres import PostgresOptions, PrivatePostgres
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
    """A founded mesh, its servers and its runtimes. With ``async with``: nothing runs at first, and nothing is left at the end.

    ``grantees`` are the runtimes that come when there is something to grant: the issuer of databases, and the guide's example.
    """

    def __init__(self, modules: Iterable[str], installation: Installation | None = None, *, durable: bool = False) -> None:
        """``installation`` is the RabbitMQ that runs; by default this machine's. ``durable``: what the PostgreSQL commits is on the disk.

        Raises NoBroker, NoPostgres.
        """
        self.broker = PrivateBroker(BrokerOptions(installation=installation or Installation(), name=BROKER_NAME))
        self.postgres = PrivatePostgres(PostgresOptions(durable=durable))
        self.directory = self.broker.directory / "bed"
        self._site = self.broker.directory / "site"
        greeting.install(self._site)
        place = BrokerPlace(address=self.broker.address, name=BROKER_NAME)
        extra = {**bed_logins(MACHINE), Identity(greeting.MODULE, MACHINE): greeting.manifest(self._site)}
        self.founded: FoundedMesh = found_mesh(self.directory, place, machine=MACHINE, modules=(*modules, "database"), extra=extra)
        if self.founded.leaf is not None and self.founded.authority is not None:
            leaf = self.founded.leaf
            self.broker.replace_certificate(Leaf(leaf.certificate, leaf.key), self.founded.authority.pem)
        self.runtimes = {name: self._runtime(name, script(name)) for name in modules}
        server = self.postgres.write_server(self.directory / "postgresql")
        self.grantees = {
            "database": self._runtime("database", script("database"), MESH_DATABASE_SERVER=str(server)),
            greeting.MODULE: self._runtime(greeting.MODULE, greeting.program(self._site)),
        }
        self._open = AsyncExitStack()

    def _runtime(self, name: str, command: list[str], **own: str) -> RuntimeProcess:
        """Its Python finds the beds' classes and the installed example, as the controller's catalog must."""
        environment = self.founded.environment(name, PYTHONPATH=os.pathsep.join((str(ROOT), str(self._site))), **own)
        return RuntimeProcess(environment, command)

    @property
    def everybody(self) -> dict[str, RuntimeProcess]:
        """All runtimes, the grantees too."""
        return self.runtimes | self.grantees

    async def __aenter__(self) -> Self:
        for runtime in self.everybody.values():
            await self._open.enter_async_context(runtime.states)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.take_down()

    async def take_down(self) -> dict[str, int | None]:
        """End everything, runtimes first; their exit codes. Repeatable."""
        try:
            await asyncio.gather(*(one.stop() for one in self.everybody.values() if one.running))
        finally:
            await self._open.aclose()
            await asyncio.gather(asyncio.to_thread(self.postgres.dispose), asyncio.to_thread(self.broker.dispose))
        return {name: one.exit_code for name, one in self.everybody.items()}

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
