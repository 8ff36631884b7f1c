"""What the tests of starting and stopping share: processes of real entry points, and an asker outside of them."""

import asyncio
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
from mesh_runtime.contracts.rights import rights_of
from mesh_runtime.runtime import ModuleRuntime, manifest_of
from mesh_runtime.settings import read_credentials
from mesh_runtime.startup import RuntimeState, StageFault
from mesh_runtime.testing.processes import RuntimeProcess, program_of
from mesh_runtime.testing.running import Runtimes

ANY_PIN = "a5" * 32
PUPIL = Manifest(module="pupil", version="0", command=("none",), tells=("noted.1",))


def environment(directory: Path, broker: str, machine: str = "alpha", module: str = "networking", **more: str) -> dict[str, str]:
    """The variables of a runtime that has a login and a pin, but perhaps no broker; ``more`` adds or overrides, an empty value unsets."""
    credentials = directory / "credentials" / machine
    credentials.mkdir(parents=True, exist_ok=True)
    (credentials / "username").write_text(f"{module}@{machine}")
    (credentials / "password").write_text(secrets.token_urlsafe(12))
    return {
        "MESH_BROKER": broker,
        "MESH_BROKER_NAME": "broker.mesh",
        "MESH_CA_PIN": ANY_PIN,
        "MESH_CREDENTIALS": str(credentials),
        "MESH_MACHINE": machine,
        "MESH_STATE_DIR": str(directory / "state" / f"{module}@{machine}"),
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


async def ended_by_sigterm(process: RuntimeProcess, within: float = 1.0) -> float:
    """Send SIGTERM and return the seconds to its end: in time, with exit code 0, without a traceback anywhere."""
    before = len(process.logs.lines)
    began = time.monotonic()
    process.signal(signal.SIGTERM)
    code = await process.ended(10)
    took = time.monotonic() - began
    said = "\n".join(line.text for line in process.logs.lines[before:])
    assert (code, "Traceback" in said) == (0, False), said
    assert took < within, f"it took {took:.2f} s to end; it said:\n{said}"
    return took


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
        return cls(at_of(runtimes, await runtimes.login(identity, manifest)), identity, manifest)

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


def at_of(runtimes: Runtimes, credentials: Path) -> BrokerAt:
    """Straight to the broker of ``runtimes``, past any gate."""
    return BrokerAt(
        addresses=(("127.0.0.1", runtimes.broker.ports.amqps),),
        name=runtimes.broker.name,
        vhost=runtimes.vhost,
        heartbeat=runtimes.heartbeat,
        ca_file=None,
        ca_pin=runtimes.broker.ca.pin,
        credentials=lambda: read_credentials(credentials),
    )
