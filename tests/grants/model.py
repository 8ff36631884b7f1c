"""The mesh of the model: one issuer, three consumers and an intruder, as processes that can be killed, and messages that can be late.

The classes are the real ones: Issuer, SqliteLedger, Holder, sealing. Stand-ins are the server and the broker, which here is a list of
tells that are on their way. All runs on one loop whose threads run at once and in order, so that a history can be played again.
"""

import asyncio
import contextvars
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from mesh_runtime.asking import Scope, scoped
from mesh_runtime.contracts.base import Tell
from mesh_runtime.contracts.granting import GrantAsk, GrantConfirmed, Granted, GrantRevoked, GrantRotated
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.outcomes import Missing, Reason, Refused, Unanswered
from mesh_runtime.grants.granted import granted
from mesh_runtime.grants.holding import Holder
from mesh_runtime.grants.issuing import Issuer
from mesh_runtime.grants.ledger import Login, Record
from mesh_runtime.grants.providing import Claim
from mesh_runtime.grants.sqlite import SqliteLedger
from mesh_runtime.startup import StageFault
from tests.grants.cutting import cut
from tests.grants.parts import ISSUER, ONE, Account, Maker, Mesh, StandInServer, Thing, ThingAccess, key

T = TypeVar("T")

CONSUMERS = ("orders@alpha", "orders@beta", "billing@alpha")
INTRUDER = "intruder@alpha"
#: Turns of the loop after which a delivery that has not ended waits for somebody.
TURNS = 400
NEVER = 1 << 30


class AtOnce(ThreadPoolExecutor):
    """Runs what it is given at once: the real ledger, without the chances of threads."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - carried to whoever awaits it
            future.set_exception(error)
        return future


class TrustingMaker(Maker):
    """Takes whatever owner it is told: that no resource has two is the issuer's to see to."""

    async def make(self, claim: Claim[Thing]) -> ThingAccess:
        self.server.owners.pop(claim.resource.text, None)
        SECRETS.add(claim.secret.get_secret_value())
        return await super().make(claim)


#: Every secret that was drawn in this history.
SECRETS: set[str] = set()
#: What happened in all histories: a model in which nothing happens would hold too.
HAPPENED: Counter[str] = Counter()


class User:
    """The module of a consumer."""

    def __init__(self, server: StandInServer) -> None:
        self.server = server

    @granted(ONE)
    async def thing(self, access: ThingAccess) -> AsyncIterator[ThingAccess]:
        await asyncio.sleep(0)
        if not self.server.opens(access.user, access.password.get_secret_value()):
            raise PermissionError(f"{access.user} cannot log in")
        yield access


@dataclass
class Handler:
    """A handler of a consumer that has begun and uses ``login``."""

    login: str
    ending: asyncio.Event
    task: "asyncio.Task[None]"


@dataclass
class Life:
    """A placement; ``holder`` is there while its process lives."""

    name: str
    key_file: Path
    key_number: int = 0
    holder: Holder | None = None
    user: User | None = None
    handlers: list[Handler] = field(default_factory=list)
    under_way: dict["asyncio.Task[None]", Tell] = field(default_factory=dict)

    @property
    def key_name(self) -> str:
        return f"{self.name} {self.key_number}"


class World:
    """All of it. What begins with ``crash`` takes the number of the issuer's await at which its process is killed."""

    def __init__(self, directory: Path) -> None:
        SECRETS.clear()
        self.mesh = Mesh(directory / "ledger.sqlite")
        self.mesh.entitle(*CONSUMERS)
        self.issuer: Issuer = self.mesh.issuer(TrustingMaker)
        self.wire: list[tuple[str, str, Tell]] = []
        self.sealed: dict[tuple[str, str, int, str], str] = {}
        self.may_end: set[str] = set()
        self.lives = {name: Life(name, directory / f"{name}.key") for name in CONSUMERS}
        for life in self.lives.values():
            self.write_key(life)

    def write_key(self, life: Life) -> None:
        """Put the key of its present number where the consumer reads it."""
        life.key_file.unlink(missing_ok=True)
        key(life.key_name).save(life.key_file)

    # ------------------------------------------------------------------------------------------------ the issuer's process

    async def at_issuer(self, work: Coroutine[Any, Any, T], crash: int = NEVER) -> T | None:
        """Have the issuer do ``work``. None: its process was killed over it, and another has begun."""
        done: tuple[T] | None = (await work,) if crash == NEVER else await cut(_some(work), crash)
        if done is None:
            HAPPENED["issuer killed"] += 1
            self.new_issuer()
        self._take_told()
        return None if done is None else done[0]

    def new_issuer(self) -> None:
        """The issuer's process is over, and another begins."""
        self.issuer = self.mesh.issuer(TrustingMaker)
        self._take_told()

    def _take_told(self) -> None:
        """What the issuer has told is on its way."""
        for to, tell in self.mesh.told:
            HAPPENED[f"told {tell.type_name()}"] += 1
            self.wire.append((to, str(ISSUER), tell))
            if isinstance(tell, GrantRotated):
                self.sealed["access", to, tell.sequence, tell.key] = tell.sealed
        self.mesh.told.clear()

    # ------------------------------------------------------------------------------------------------ a consumer's process

    async def start(self, life: Life, crash: int = NEVER, lost: bool = False) -> StageFault | None:
        """Climb its stage ``grants``, in a new process if there is none. ``lost``: the answer does not arrive."""
        first = [(crash, lost)]

        async def ask(ask: GrantAsk) -> Granted | Refused:
            crash, lost = first.pop() if first else (NEVER, False)
            outcome = await self.at_issuer(self.issuer.provide(ask, life.name), crash)
            if outcome is None or lost:
                HAPPENED["answer lost"] += 1
                raise Unanswered([Missing(question="provision", reason=Reason.SESSION_LOST)])
            HAPPENED[f"answered {outcome.code if isinstance(outcome, Refused) else outcome.outcome}"] += 1
            if isinstance(outcome, Granted):
                self.sealed["access", life.name, outcome.sequence, outcome.key] = outcome.sealed
            return outcome.model_copy(update={"by": str(ISSUER)})

        async def confirm(tell: GrantConfirmed, to: Identity, number: str) -> None:
            self.wire.append((str(to), life.name, tell))

        if life.holder is None:
            life.user = User(self.mesh.server)
            methods = {"thing": User.thing}
            life.holder = Holder(life.user, methods, Identity.parse(life.name), life.key_file, ask, confirm)
        try:
            async with asyncio.timeout(10):
                await life.holder.enter_all()
        except StageFault as fault:
            return fault
        return None

    async def kill(self, life: Life) -> None:
        """Its process is over; what it had not acknowledged comes again."""
        for handler in life.handlers:
            handler.ending.set()
        tasks = [*life.under_way, *(handler.task for handler in life.handlers)]
        for task in life.under_way:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.wire += [(life.name, str(ISSUER), tell) for tell in life.under_way.values()]
        life.under_way.clear()
        life.handlers.clear()
        if life.holder is not None:
            await life.holder.leave(1.0)
        life.holder = life.user = None

    async def use(self, life: Life) -> None:
        """A handler begins, if it can."""
        ending, began = asyncio.Event(), asyncio.Event()
        logins: list[str] = []

        async def handle() -> None:
            try:
                with scoped(Scope(what="use")):
                    if life.user is not None and life.holder is not None and life.holder._held[ONE.text]._now is not None:
                        logins.append(life.user.thing.user)
                        began.set()
                        await ending.wait()
            finally:
                began.set()

        task = asyncio.get_running_loop().create_task(handle(), context=contextvars.copy_context())
        await began.wait()
        if logins:
            HAPPENED["used"] += 1
            life.handlers.append(Handler(logins[0], ending, task))
        else:
            await task

    async def end_use(self, life: Life) -> None:
        """The oldest handler ends."""
        if life.handlers:
            handler = life.handlers.pop(0)
            handler.ending.set()
            await handler.task
            await self.turns(life)

    # ------------------------------------------------------------------------------------------------ messages

    async def deliver(self, at: int, crash: int = NEVER, again: bool = False) -> None:
        """A tell arrives, whichever; ``again``: it will come once more."""
        if not self.wire:
            return
        to, sender, tell = message = self.wire.pop(at % len(self.wire))
        if again:
            self.wire.append(message)
        if isinstance(tell, GrantConfirmed):
            done = await self.at_issuer(_some(self.issuer.confirmed(tell, sender)), crash)
            HAPPENED["confirmed"] += done is not None
            if done is None:
                self.wire.append(message)
        elif (life := self.lives[to]).holder is None:
            self.wire.append(message)
        else:
            task = asyncio.get_running_loop().create_task(self.handed(life.holder, tell, sender))
            life.under_way[task] = tell
            await self.turns(life)

    async def handed(self, holder: Holder, tell: Tell, sender: str) -> None:
        """A consumer handles a tell. One that it cannot handle is parked."""
        try:
            if isinstance(tell, GrantRotated):
                await holder.rotated(tell, sender)
                HAPPENED["rotated tells handled"] += sender == str(ISSUER)
            elif isinstance(tell, GrantRevoked):
                await holder.revoked(tell, sender)
        except StageFault:
            return

    async def turns(self, life: Life) -> None:
        """Let what is under way at a consumer go on, until it ends or waits for a handler."""
        for _ in range(TURNS):
            if not any(not task.done() for task in life.under_way):
                break
            await asyncio.sleep(0)
        for task in [one for one in life.under_way if one.done()]:
            del life.under_way[task]
            task.result()

    # ------------------------------------------------------------------------------------------------ looking

    async def records(self) -> tuple[Record, ...]:
        """What the ledger holds; every sealed text in it is remembered."""
        records = await SqliteLedger(self.mesh.file).all()
        for record in records:
            for login in record.logins:
                what = "secret" if _was_drawn_only(login) else "access"
                self.sealed.setdefault((what, record.consumer, login.sequence, login.key), login.sealed)
        return records

    async def logins(self, name: str) -> set[str]:
        """The logins in the record of a consumer."""
        return {login.login for record in await self.records() if record.consumer == name for login in record.logins}

    def accounts(self, name: str) -> dict[str, Account]:
        """The logins of a consumer that work."""
        return {login: one for login, one in self.mesh.server.accounts.items() if login.startswith(f"{name}.")}


def _was_drawn_only(login: Login) -> bool:
    # A secret alone is 43 bytes; sealed and in base64 it is much shorter than a whole access.
    return len(login.sealed) < 140


async def _some(work: Coroutine[Any, Any, T]) -> tuple[T]:
    return (await work,)
