"""What the tests of starting and stopping share: processes of real entry points, and an asker outside of them."""

import asyncio
import math
import secrets
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mesh_runtime.asking import Asker
from mesh_runtime.broker import BrokerAt, Delivery, Session, open_session
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.manifest import Manifest
from mesh_runtime.contracts.outcomes import Reason, Unanswered
from mesh_runtime.contracts.rights import definitions, rights_of
from mesh_runtime.runtime import ModuleRuntime, manifest_of
from mesh_runtime.settings import read_credentials
from mesh_runtime.startup import RuntimeState, StageFault
from mesh_runtime.testing.broker import PrivateBroker
from mesh_runtime.testing.broker_files import password_hash
from mesh_runtime.testing.processes import RuntimeProcess, program_of
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.trust.context import reading_context

ANY_PIN = "a5" * 32
PUPIL = Manifest(module="pupil", version="0", command=("none",), tells=("noted.1",))


def environment(directory: Path, broker: str, machine: str = "alpha", module: str = "networking", **more: str) -> dict[str, str]:
    """The variables of a runtime that has a login and a pin, but perhaps no broker; ``more`` adds or overrides, an empty value unsets."""
    who = f"{module}@{machine}"
    credentials = write_credentials(directory / "unknown" / who, who, secrets.token_urlsafe(12))
    return {
        "MESH_BROKER": broker,
        "MESH_BROKER_NAME": "broker.mesh",
        "MESH_CA_PIN": ANY_PIN,
        "MESH_CREDENTIALS": str(credentials),
        "MESH_MACHINE": machine,
        "MESH_STATE_DIR": str(directory / "state" / who),
        "MESH_HEARTBEAT": "5",
        **more,
    }


@dataclass
class Launcher:
    """Starts runtimes as processes; the fixture ``launch`` ends what is left of them."""

    directory: Path
    processes: list[RuntimeProcess] = field(default_factory=list)

    async def start(self, variables: dict[str, str], command: Sequence[str]) -> RuntimeProcess:
        """One process of ``command``."""
        process = RuntimeProcess(variables, command)
        self.processes.append(process)
        return await process.start()

    async def on(self, runtimes: Runtimes, cls: type[ModuleRuntime], machine: str = "alpha", **more: str) -> RuntimeProcess:
        """A process of ``cls`` with a login on the broker of ``runtimes``."""
        return await self.start(await placed(runtimes, cls, machine, **more), program_of(cls))


async def placed(runtimes: Runtimes, cls: type[ModuleRuntime], machine: str = "alpha", **more: str) -> dict[str, str]:
    """The variables of a runtime of ``cls``, its login made on the broker."""
    identity = Identity(cls.module, machine)
    return {
        **environment(runtimes.directory, f"127.0.0.1:{runtimes.port or runtimes.broker.ports.amqps}", machine, cls.module),
        "MESH_BROKER_NAME": runtimes.broker.name,
        "MESH_VHOST": runtimes.vhost,
        "MESH_CA_PIN": runtimes.broker.ca.pin,
        "MESH_CREDENTIALS": str(await runtimes.login(identity, manifest_of(cls, "0"))),
        **more,
    }


async def seconds_to_end(process: RuntimeProcess, number: signal.Signals = signal.SIGTERM, limit: float = 6.0) -> float:
    """Send a signal and return the seconds until the process has ended; infinite if it did not within ``limit``."""
    began = time.monotonic()
    process.signal(number)
    try:
        await process.ended(limit)
    except TimeoutError:
        return math.inf
    return time.monotonic() - began


class PreparedBroker:
    """A broker of a test's own that does not run yet: logins stand on paper, and are there before its port first accepts."""

    def __init__(self, broker: PrivateBroker, directory: Path, vhost: str = "mesh") -> None:
        self.broker = broker
        self.directory = directory
        self.vhost = vhost
        self._logins: dict[Identity, Manifest] = {}
        self._hashes: dict[Identity, str] = {}

    def login(self, identity: Identity, manifest: Manifest) -> Path:
        """A login on paper; returns its credentials directory."""
        password = secrets.token_urlsafe(18)
        self._logins[identity], self._hashes[identity] = manifest, password_hash(password)
        return write_credentials(self.directory / "credentials" / str(identity), str(identity), password)

    def definitions(self) -> dict[str, Any]:
        """All of it, for the broker's start."""
        return definitions(self.vhost, self._logins, self._hashes)

    def environment(self, module: str, manifest: Manifest, machine: str = "alpha", **more: str) -> dict[str, str]:
        """The variables of a runtime, its login on paper."""
        return {
            **environment(self.directory, self.broker.address, machine, module),
            "MESH_BROKER_NAME": self.broker.name,
            "MESH_VHOST": self.vhost,
            "MESH_CA_PIN": self.broker.ca.pin,
            "MESH_CREDENTIALS": str(self.login(Identity(module, machine), manifest)),
            **more,
        }

    def outside(self, manifest: Manifest) -> "Outside":
        """An asker with a login on paper."""
        identity = Identity(manifest.module, "outside")
        return Outside(at_of(self.broker, self.vhost, self.login(identity, manifest)), identity, manifest)


def write_credentials(directory: Path, username: str, password: str) -> Path:
    """Write a login's files, or replace them; returns the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "username").write_text(username)
    (directory / "password").write_text(password)
    return directory


async def first_handshake(port: int, within: float = 60.0) -> float:
    """When (``time.monotonic``) the broker on this port first accepted TLS."""
    context = reading_context()
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            async with asyncio.timeout(5):
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except OSError:
            await asyncio.sleep(0.01)
            continue
        accepted = time.monotonic()
        writer.transport.abort()
        return accepted
    raise AssertionError(f"nobody accepted TLS on port {port} within {within:g} s")


class Outside:
    """An asker that is no runtime: it dials by itself, again and again, and never waits longer than it must."""

    def __init__(self, at: BrokerAt, identity: Identity, manifest: Manifest) -> None:
        self._at = at
        self._identity = identity
        self._state = RuntimeState(str(identity), "0", 0)
        self._session: Session | None = None
        self.asker = Asker(identity, rights_of(identity, manifest), self._state)

    @classmethod
    async def of(cls, runtimes: Runtimes, manifest: Manifest = PUPIL, machine: str = "outside") -> "Outside":
        """With a login on the broker of ``runtimes``."""
        identity = Identity(manifest.module, machine)
        return cls(at_of(runtimes.broker, runtimes.vhost, await runtimes.login(identity, manifest)), identity, manifest)

    async def connected(self, within: float = 20.0) -> "Outside":
        """A session stands, and replies are consumed."""
        self._session = session = await self._opened(time.monotonic() + within)
        replies = wire.replies_queue(self._identity, session.id)
        await session.declare_queue(replies, exclusive=True)
        await session.bind(replies, wire.REPLIES, wire.reply_key(self._identity, session.id))
        line = await session.wire()
        line.on_returned = self.asker.on_returned
        await line.consume(replies, self._replied, no_ack=True)
        self.asker.attach(session, line)
        return self

    async def _opened(self, deadline: float) -> Session:
        while True:
            try:
                return await open_session(self._at, str(self._identity))
            except StageFault as fault:
                if time.monotonic() > deadline:
                    raise AssertionError(f"the outside asker did not connect in time: {fault}") from fault
            await asyncio.sleep(0.02)

    def _replied(self, delivery: Delivery) -> None:
        self.asker.on_reply(delivery)

    async def answered(self, ask: Any, within: float = 20.0) -> Any:
        """The outcome of ``ask`` (a question, or a function that asks), asked again while nobody answers it at all."""
        deadline = time.monotonic() + within
        while True:
            try:
                return await (ask() if callable(ask) else self.asker.ask(ask, budget=5.0))
            except Unanswered as unanswered:
                if set(unanswered.reasons) != {Reason.NOBODY} or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Its session ends."""
        if self._session is not None:
            self.asker.detach("closed")
            await self._session.close()

    async def __aenter__(self) -> "Outside":
        return await self.connected()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def at_of(broker: PrivateBroker, vhost: str, credentials: Path) -> BrokerAt:
    """Straight to a broker, past any gate."""
    return BrokerAt(
        addresses=(("127.0.0.1", broker.ports.amqps),),
        name=broker.name,
        vhost=vhost,
        heartbeat=5.0,
        ca_file=None,
        ca_pin=broker.ca.pin,
        credentials=lambda: read_credentials(credentials),
    )
