"""The same work by two runtimes of this library, whole: stages, rights, records, scopes, logs, everything that a module gets."""

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.work import LABELS, REPLY, Counted, Reply, Target, asks, tells
from mesh_runtime import Found, Lookup, ModuleRuntime, ModuleSettings, Tell, answers, told
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.runtime import Life
from mesh_runtime.settings import Address, RuntimeSettings
from mesh_runtime.startup import RuntimeState
from mesh_runtime.testing.waiting import until
from mesh_runtime_networking import Networking

VERSION = "0.bench"


class Look(Lookup[Found[Reply]], answered_by="answering"):
    """The ask of ``work.Ask``, as a contract."""

    machine: str
    network: str
    generation: int
    labels: dict[str, str]


class Happened(Tell):
    """The tell of ``work.Ask``, as a contract."""

    machine: str
    network: str
    generation: int
    labels: dict[str, str]


FIELDS: dict[str, object] = {"machine": "node-a", "network": "overlay", "generation": 7, "labels": LABELS}


class Answering(ModuleRuntime):
    """Answers asks."""

    @answers(Look)
    async def look(self, ask: Look) -> Found[Reply]:
        """Always the same."""
        return Found(value=REPLY, revision=1)


class Listening(ModuleRuntime):
    """Is told; ``prepare`` is the last step before it consumes."""

    counted: Counted | None = None

    async def prepare(self) -> None:
        """Consuming begins."""
        if self.counted is not None:
            self.counted.begin()

    @told(Happened)
    async def note(self, tell: Happened) -> None:
        """Counts."""
        if self.counted is not None:
            self.counted.one()


class Asking(ModuleRuntime):
    """Asks and tells."""

    tells = (Happened,)


#: The runtimes of a run, for whom the run makes logins.
CLASSES: tuple[type[ModuleRuntime], ...] = (Answering, Listening, Asking, Networking)


@dataclass
class Running:
    """One runtime in this process."""

    life: Life
    task: asyncio.Task[int]

    async def ended(self) -> None:
        """Stop it in order."""
        self.life.stop.set()
        await self.task


async def _started(stack: AsyncExitStack, cls: type[ModuleRuntime], at: Target, directory: Path) -> Running:
    settings = RuntimeSettings(
        broker=(Address(at.host, at.port),),
        broker_name=at.host,
        vhost=at.vhost,
        ca_file=Path(at.ca_file),
        credentials=directory / cls.module,
        machine="bench",
        state_dir=directory / f"state-{cls.module}",
    )
    state = RuntimeState(str(Identity(cls.module, "bench")), VERSION, os.getpid())
    life = Life(cls, VERSION, settings, ModuleSettings(), state)
    running = Running(life, asyncio.create_task(life.run(), name=cls.module))
    stack.push_async_callback(running.ended)
    await until(lambda: state.ready or running.task.done(), f"{state.identity} is ready", within=30)
    return running


async def mesh_runtime(at: Target, directory: Path) -> dict[str, float]:
    """Asks, then tells: the listener declares its queue, is away while they are sent, and comes back to handle them."""
    async with AsyncExitStack() as stack:
        await _started(stack, Answering, at, directory)
        asking = await _started(stack, Asking, at, directory)
        look = Look.model_validate(FIELDS)
        measured = await asks(lambda: asking.life.module.ask(look))
        listening = await _started(stack, Listening, at, directory)
        await listening.ended()
        happened = Happened.model_validate(FIELDS)
        measured["tells_confirmed"] = await tells(lambda: asking.life.module.tell(happened))
        counted = Listening.counted = Counted()
        await _started(stack, Listening, at, directory)
        measured["tells_handled"] = await counted.rate()
        return measured
