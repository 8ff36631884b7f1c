"""Real runtimes of a test's own module classes, in this process, against a real broker: what the library's tests run on.

``runtimes`` is a fixture: ``async with runtimes.run(Orders) as running`` makes the login, its permissions and the mesh's exchanges in the
test's virtual host, then lives the runtime's whole life, signals aside. A runtime that is not waited for may still be climbing.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.manifest import Manifest
from mesh_runtime.contracts.rights import definitions
from mesh_runtime.runtime import Life, ModuleRuntime, manifest_of
from mesh_runtime.settings import Address, ModuleSettings, RuntimeSettings
from mesh_runtime.startup import RuntimeState
from mesh_runtime.testing.broker import PrivateBroker
from mesh_runtime.testing.management import Management
from mesh_runtime.testing.waiting import until

VERSION = "0.test"


@dataclass
class Running:
    """One runtime in this process: its module object, its state, and its end."""

    life: Life
    task: asyncio.Task[int]

    @property
    def state(self) -> RuntimeState:
        """The state that its socket shows."""
        return self.life.state

    @property
    def module(self) -> Any:
        """The author's object."""
        return self.life.module

    async def ready(self, within: float = 10.0) -> "Running":
        """Wait until it is ready; itself."""
        await until(lambda: self.state.ready or self.task.done(), f"{self.state.identity} is ready", within=within)
        assert self.state.ready, f"{self.state.identity} ended: {self.task}"
        return self

    async def ended(self, within: float = 10.0) -> int:
        """Tell it to stop and wait for its end; the exit code."""
        self.life.stop.set()
        async with asyncio.timeout(within):
            return await self.task


@dataclass
class Runtimes:
    """Runs runtimes in one virtual host of a broker. ``port`` is where they dial: the broker's, or a gate's before it."""

    broker: PrivateBroker
    management: Management
    vhost: str
    directory: Path
    heartbeat: int = 5
    port: int = 0
    _logins: dict[Identity, Manifest] = field(default_factory=dict)

    async def login(self, identity: Identity, manifest: Manifest) -> Path:
        """Make the login with its permissions, and the exchanges; returns its credentials directory."""
        self._logins[identity] = manifest
        user = f"{identity}"
        password = secrets.token_urlsafe(18)
        directory = self.directory / "credentials" / user
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "username").write_text(user)
        (directory / "password").write_text(password)
        await self.management.put_user(user, password)
        made = definitions(self.vhost, self._logins)
        await self.management.put_definitions({name: rows for name, rows in made.items() if name != "vhosts"})
        return directory

    def key_file(self, identity: Identity) -> Path:
        """The file of this placement's key, which is drawn when it is first asked for: what ``MESH_KEY_FILE`` names."""
        from mesh_runtime.trust.sealing import PrivateKey

        path = self.directory / "keys" / f"{identity}.pem"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            PrivateKey.generate().save(path)
        return path

    async def settings(self, cls: type[ModuleRuntime], machine: str, key_file: Path | None = None) -> RuntimeSettings:
        """The settings of a runtime of ``cls`` on ``machine``, its login made; and its key, if it needs one and none is given."""
        identity = Identity(cls.module, machine)
        credentials = await self.login(identity, manifest_of(cls, VERSION))
        return RuntimeSettings(
            broker=(Address("127.0.0.1", self.port or self.broker.ports.amqps),),
            broker_name=self.broker.name,
            vhost=self.vhost,
            ca_pin=self.broker.ca.pin,
            credentials=credentials,
            machine=machine,
            state_dir=self.directory / "state" / str(identity),
            key_file=key_file or (self.key_file(identity) if cls.granted_methods else None),
            heartbeat=self.heartbeat,
        )

    @asynccontextmanager
    async def run(
        self, cls: type[ModuleRuntime], machine: str = "alpha", own: ModuleSettings | None = None, key_file: Path | None = None
    ) -> AsyncIterator[Running]:
        """Live one runtime of ``cls`` until the body ends; raises what its life raised.

        ``key_file`` is its placement's key, instead of one that is made for it; it may come later.
        """
        settings = await self.settings(cls, machine, key_file)
        state = RuntimeState(f"{cls.module}@{machine}", VERSION, os.getpid())
        life = Life(cls, VERSION, settings, own or cls.settings_class()(), state)
        running = Running(life, asyncio.create_task(life.run(), name=f"life of {state.identity}"))
        try:
            yield running
        finally:
            if not running.task.done():
                await running.ended()
            running.task.result()
