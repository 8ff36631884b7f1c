"""A provisioner of things and a consumer of one, as runtimes; and what else a mesh around them needs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from mesh_runtime import Contract, Found, Lookup, ModuleRuntime, Tell, answers, granted, told
from mesh_runtime.asking.visiting import visit
from mesh_runtime.broker import open_session
from mesh_runtime.contracts.granting import GrantAct, GrantsShown, GrantTerms, TermsOf
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.manifest import Manifest
from mesh_runtime.contracts.outcomes import Absent, Refused
from mesh_runtime.grants.sqlite import SqliteLedger
from mesh_runtime.testing.responder import MakeResponder, Responder
from mesh_runtime.testing.running import Running, Runtimes
from mesh_runtime.testing.waiting import until
from tests.grants.parts import ONE, Maker, StandInServer, Thing, ThingAccess, act
from tests.raw import broker_at


class ReleasingServer(StandInServer):
    """What hangs goes on as soon as it is taken out of ``hanging``."""

    async def step(self, name: str) -> None:
        self.steps.append(name)
        await until(lambda: name not in self.hanging, f"{name} goes on", within=120)
        if name in self.failing:
            raise self.failing[name]
        await asyncio.sleep(0)


class MakerRuntime(ModuleRuntime, Maker):
    """Provides things on the shared server; its ledger stands in its state directory."""

    module = "maker"
    shared: ClassVar[StandInServer] = StandInServer()

    def __init__(self, *args: Any) -> None:
        ModuleRuntime.__init__(self, *args)
        Maker.__init__(self, self.shared, SqliteLedger(self.state_dir / "ledger.sqlite"))


class Pool:
    """What is opened with an access: it logs in at the shared server, and again at every use."""

    shared: ClassVar[StandInServer] = StandInServer()
    opened: ClassVar[list["Pool"]] = []

    def __init__(self, access: ThingAccess) -> None:
        self.user, self._password = access.user, access.password
        self.closed = False
        self.opened.append(self)

    @property
    def sequence(self) -> int:
        """Of its login: the last part of its name."""
        return int(self.user.rpartition(".")[2])

    def use(self) -> int:
        """Do something with it, which fails if it is closed or its login has ended; its sequence number."""
        if self.closed:
            raise RuntimeError(f"{self.user} was closed")
        if not self.shared.opens(self.user, self._password.get_secret_value()):
            raise PermissionError(f"{self.user} cannot log in")
        return self.sequence

    def __repr__(self) -> str:
        return f"Pool({self.user})"


class Row(Tell):
    """Something to be written; ``hold`` has its handler wait for the module's ``go``."""

    number: int
    hold: bool = False


class Used(Contract):
    """Which login was used, at the beginning and at the end."""

    first: int
    last: int


class Use(Lookup[Found[Used]], answered_by="shop"):
    """Has the pool used; ``hold`` as in ``Row``."""

    hold: bool = False


class UseInThread(Lookup[Found[Used]], answered_by="shop"):
    """The same, in a plain ``def``."""

    hold: bool = False


class Shop(ModuleRuntime):
    """Is granted one thing."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.go = asyncio.Event()
        self.held = 0
        self.rows: dict[int, Used] = {}
        self.doubled = 0

    @granted(ONE)
    async def pool(self, access: ThingAccess) -> AsyncIterator[Pool]:
        pool = Pool(access)
        try:
            await self.trial(pool)
            yield pool
        finally:
            try:
                await self.close(pool)
            finally:
                pool.closed = True

    async def trial(self, pool: Pool) -> None:
        """Whether it can be used: tests put others in its place."""
        await Pool.shared.step("trial")
        pool.use()

    async def close(self, pool: Pool) -> None:
        """Before it is closed: tests put others in its place."""
        await Pool.shared.step("close")

    async def _used(self, hold: bool) -> Used:
        first = self.pool.use()
        if hold:
            self.held += 1
            await self.go.wait()
        else:
            await asyncio.sleep(0)
        return Used(first=first, last=self.pool.use())

    @told(Row)
    async def row(self, tell: Row) -> None:
        self.doubled += tell.number in self.rows
        self.rows[tell.number] = await self._used(tell.hold)

    @answers(Use)
    async def use(self, ask: Use) -> Found[Used]:
        return Found(value=await self._used(ask.hold), revision=1)

    @answers(UseInThread)
    def use_in_thread(self, ask: UseInThread) -> Found[Used]:
        first = self.pool.use()
        if ask.hold:
            self.held += 1
            asyncio.run_coroutine_threadsafe(self.go.wait(), self._loop).result()
        return Found(value=Used(first=first, last=self.pool.use()), revision=1)

    async def prepare(self) -> None:
        self._loop = asyncio.get_running_loop()


class Customer(ModuleRuntime):
    """Asks and tells the shop."""

    tells = (Row,)


def entitled(key: str = "") -> Callable[[TermsOf], Found[GrantTerms] | Absent]:
    """What the controller says: the shop's placements need the one thing, and nobody else needs anything."""

    def said(ask: TermsOf) -> Found[GrantTerms] | Absent:
        mine = ask.consumer.startswith("shop@") and ask.resource == ONE.text
        return Found(value=GrantTerms(key=key), revision=1) if mine else Absent(revision=1)

    return said


@asynccontextmanager
async def controller(responder: MakeResponder, key: str = "") -> AsyncIterator[Responder]:
    """A controller that says who is entitled."""
    async with responder("controller@stand-in", {TermsOf: entitled(key)}) as one:
        yield one


async def operate(runtimes: Runtimes, ask: GrantAct) -> GrantsShown | Refused:
    """An operator's act, over a session of its own."""
    who = Identity("operator", "desk")
    manifest = Manifest(module="operator", version="0.test", command=("mesh",))
    await runtimes.login(who, manifest)
    session = await open_session(broker_at(runtimes, str(who)), str(who))
    try:
        asker = await visit(session, who, manifest)
        outcome = await asker.ask(ask, budget=10)
        assert isinstance(outcome, GrantsShown | Refused)
        return outcome
    finally:
        await session.close()


async def done(runtimes: Runtimes, what: str, consumer: str = "shop@alpha", resource: Thing | None = ONE) -> GrantsShown:
    """An act that must not be refused."""
    outcome = await operate(runtimes, act(what, consumer, resource))
    assert isinstance(outcome, GrantsShown), outcome
    return outcome


async def stands_at(one: Running, state: str, code: str, within: float = 10.0) -> str:
    """Wait until it stands at ``grants`` in this state with this code; the cause's words."""
    await until(lambda: (one.state.state, one.state.cause and one.state.cause.code) == (state, code), f"{state} {code}", within=within)
    assert str(one.state.stage) == "grants"
    assert one.state.cause is not None
    return one.state.cause.text
