"""The rig: a whole mesh whose links pass through gates that see every step, and whose four parties can be killed and started again.

The operator and the load reach the broker beside the gates; what is looked at from outside is looked at beside them too.
"""

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, TypeVar

from beds.cuts.amqp import AmqpGate
from beds.cuts.sql import SqlGate
from beds.cuts.steady import SteadyLoad
from beds.cuts.steps import CONSUMER, PROVISIONER, Watch
from beds.greeting import MODULE
from beds.lab import MACHINE, Lab, Ran
from beds.outside import broker_at
from beds.recording import StepFailed, check
from mesh_runtime.asking.visiting import visit
from mesh_runtime.broker import open_session
from mesh_runtime.contracts import Refused
from mesh_runtime.contracts.base import Tool
from mesh_runtime.contracts.rights import OPERATOR
from mesh_runtime.testing.ca import Leaf
from mesh_runtime.testing.gate import serving
from mesh_runtime.testing.processes import RuntimeProcess
from mesh_runtime.testing.states import States

A = TypeVar("A")

#: Messages that belong to no operation: the load's, and what a runtime says of itself.
UNSEEN = ("greeted.1",)
#: Seconds until a runtime is ready, and until an ask is answered, on a machine that is busy.
READY, BUDGET = 60.0, 30.0


class Rig:
    """Use it with ``async with``: at first the mesh is up, the grant's consumer is placed and does not run."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.lab = Lab(("controller",), durable=True)
        founded, port = self.lab.founded, self.lab.broker.ports.amqps
        if founded.leaf is None or founded.authority is None:
            raise StepFailed("the lab's mesh has no CA of its own")
        tls = serving(Leaf(founded.leaf.certificate, founded.leaf.key), founded.authority.pem)
        self._amqp = {name: AmqpGate(port, tls, name, self.watch, UNSEEN) for name in (PROVISIONER, CONSUMER)}
        self._server, self._use = SqlGate(self.lab.postgres.port, self.watch), SqlGate(self.lab.postgres.port, self.watch)
        self.provisioner, self.consumer = self.lab.grantees["database"], self.lab.grantees[MODULE]
        self.lab.postgres.write_server(self.lab.directory / "postgresql", port=str(self._server.port))
        self.provisioner.environment |= {
            "MESH_BROKER": self._amqp[PROVISIONER].address,
            "MESH_DATABASE_HOST": "127.0.0.1",
            "MESH_DATABASE_PORT": str(self._use.port),
        }
        self.consumer.environment |= {"MESH_BROKER": self._amqp[CONSUMER].address}
        for one in self.lab.everybody.values():  # it runs for an hour, on a machine that has better things to do than to watch itself
            one.environment["MESH_LOG_LEVEL"] = "info"
            one.states = States(one.states.directory, every=0.2)
        self.load = SteadyLoad(founded, founded.identity("bed"))
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            await opening.enter_async_context(self.lab)
            for gate in (*self._amqp.values(), self._server, self._use):
                await opening.enter_async_context(gate)
            await asyncio.gather(self.lab.start_broker(), asyncio.to_thread(self.lab.postgres.start), self.lab.start_runtimes())
            await self.provisioner.start()
            await asyncio.gather(self.lab.all_ready(READY), self.provisioner.states.until_ready(READY))
            key = self.lab.founded.public_key(MODULE)
            await self.done("place", "database", MACHINE)
            await self.done("place", MODULE, MACHINE, "greeting=Welcome.", "--key", str(key))
            await self.consumer.start()
            await self.consumer.states.until_ready(READY)
            await opening.enter_async_context(self.load)
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._open.aclose()

    # ------------------------------------------------------------------------------------------------ the operator

    async def done(self, *arguments: str) -> Ran:
        """A command of the operator that must be done."""
        ran = await self.lab.mesh(*arguments)
        check(ran.code == 0, f"{ran.command}: exit {ran.code}: {ran.output.strip()}")
        return ran

    async def ask(self, question: Tool[A | Refused]) -> A:
        """The same without a process, where only the outcome matters. Raises Unanswered; StepFailed if it is refused."""
        who = self.lab.founded.identity(OPERATOR)
        session = await open_session(broker_at(self.lab.founded, who), str(who))
        try:
            outcome: A | Refused = await (await visit(session, who, self.lab.founded.manifests[who])).ask(question, budget=BUDGET)
        finally:
            await session.close()
        if isinstance(outcome, Refused):
            raise StepFailed(f"{question} is refused: {outcome}")
        return outcome

    # ------------------------------------------------------------------------------------------------ killing

    async def kill(self, victim: str) -> None:
        """kill -9."""
        match victim:
            case "provisioner":
                await self.provisioner.kill()
            case "consumer":
                await self.consumer.kill()
            case "broker":
                await asyncio.to_thread(self.lab.broker.kill)
            case _:
                await asyncio.to_thread(self.lab.postgres.kill)

    async def revive(self) -> None:
        """Start again whatever does not run, all at once."""
        if not self.lab.broker.running:
            await asyncio.to_thread(self.lab.broker.start)
        if not self.lab.postgres.running:
            await asyncio.to_thread(self.lab.postgres.start)
        for one in (self.provisioner, self.consumer):
            if not one.running:
                await one.start()

    async def ready(self, *runtimes: RuntimeProcess) -> None:
        """Wait until these are ready, by default all."""
        chosen = runtimes or (*self.lab.runtimes.values(), self.provisioner, self.consumer)
        await asyncio.gather(*(one.states.until_ready(READY) for one in chosen))
