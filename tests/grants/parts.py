"""What the tests of issuing share: a stand-in for a server that has logins, its provisioner, a mesh around it, and an honest consumer.

The server is a stand-in: it keeps logins in memory. Everything that stands between it and a consumer is the real thing. Each of its effects
has an await before and after it, so that a cut can fall on either side.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pydantic import SecretStr

from mesh_runtime.contracts.base import Tell
from mesh_runtime.contracts.granting import (
    Access,
    GrantAct,
    GrantConfirmed,
    Granted,
    GrantRotated,
    GrantsShown,
    GrantTerms,
    Resource,
    acts_on,
    ask_for,
)
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.outcomes import Missing, Reason, Refused, Unanswered
from mesh_runtime.grants.issuing import Issuer
from mesh_runtime.grants.ledger import Ledger, Record
from mesh_runtime.grants.providing import Claim, Provides
from mesh_runtime.grants.sqlite import SqliteLedger
from mesh_runtime.telling import NotSent
from mesh_runtime.trust.sealing import PrivateKey, purpose_of

ISSUER = Identity("maker", "alpha")
ORDERS, SECOND, BILLING = "orders@alpha", "orders@beta", "billing@alpha"
OPERATOR = "operator@alpha"


class ThingAccess(Access):
    at: str
    user: str
    password: SecretStr


class Thing(Resource[ThingAccess], provided_by="maker"):
    name: str


ONE, OTHER = Thing(name="one"), Thing(name="other")


@cache
def key(name: str) -> PrivateKey:
    """A key of this name, drawn once: to draw and mask one takes as long as a hundred sealings."""
    return PrivateKey.generate()


class Account(NamedTuple):
    """One login of the stand-in server: its secret, what it may use, and the owner of that."""

    secret: str
    resource: str
    owner: str


class StandInServer:
    """Logins in memory. ``failing`` names steps at which it raises, ``hanging`` those at which it never goes on."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.owners: dict[str, str] = {}
        self.failing: dict[str, Exception] = {}
        self.hanging: set[str] = set()
        self.steps: list[str] = []

    async def step(self, name: str) -> None:
        """One moment at which it may be cut, fail or hang."""
        self.steps.append(name)
        await asyncio.sleep(0)
        if name in self.hanging:
            await asyncio.Event().wait()
        if name in self.failing:
            raise self.failing[name]

    def opens(self, user: str, password: str) -> bool:
        """Whether one can log in so."""
        return user in self.accounts and self.accounts[user].secret == password

    def logins_of(self, resource: str, consumer: str) -> list[str]:
        """The logins that this consumer could use this resource with."""
        return [name for name, one in self.accounts.items() if one.resource == resource and name.startswith(f"{consumer[:40]}.")]


class Maker(Provides[Thing, ThingAccess]):
    """The provisioner of things on the stand-in server."""

    def __init__(self, server: StandInServer, ledger: Ledger) -> None:
        self.server = server
        self.kept = ledger

    def ledger(self) -> Ledger:
        return self.kept

    async def make(self, claim: Claim[Thing]) -> ThingAccess:
        server, text = self.server, claim.resource.text
        await server.step("make")
        owner = server.owners.setdefault(text, claim.owner)
        assert owner == claim.owner, f"{text} belongs to {owner}, not to {claim.owner}"
        await server.step("make: owned")
        server.accounts[claim.login] = Account(claim.secret.get_secret_value(), text, owner)
        await server.step("make: made")
        return ThingAccess(at="server", user=claim.login, password=claim.secret)

    async def check(self, access: ThingAccess) -> None:
        await self.server.step("check")
        if not self.server.opens(access.user, access.password.get_secret_value()):
            raise PermissionError(f"{access.user} cannot log in")

    async def retire(self, login: str) -> None:
        await self.server.step("retire")
        self.server.accounts.pop(login, None)
        await self.server.step("retire: done")

    async def logins(self) -> Collection[str]:
        await self.server.step("logins")
        return set(self.server.accounts)


class SteppingLedger:
    """A real ledger, with an await before and after each call."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def read(self, resource: str, consumer: str) -> Record | None:
        await asyncio.sleep(0)
        found = await self._ledger.read(resource, consumer)
        await asyncio.sleep(0)
        return found

    async def all(self) -> tuple[Record, ...]:
        await asyncio.sleep(0)
        found = await self._ledger.all()
        await asyncio.sleep(0)
        return found

    async def write(self, record: Record) -> Record:
        await asyncio.sleep(0)
        written = await self._ledger.write(record)
        await asyncio.sleep(0)
        return written


@dataclass
class Mesh:
    """All that outlives an issuer's process: the server, the ledger's file, what the mesh knows, and what was told.

    ``meanwhile`` happens between an answer of the controller and its arrival.
    """

    file: Path
    server: StandInServer = field(default_factory=StandInServer)
    terms: dict[tuple[str, str], GrantTerms] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    unanswered: bool = False
    meanwhile: Callable[[], Awaitable[None]] | None = None
    told: list[tuple[str, Tell]] = field(default_factory=list)
    unsent: str = ""
    shown: dict[str, str] = field(default_factory=dict)
    times: int = 0

    def entitle(self, *consumers: str, resource: Thing = ONE, key: str = "") -> None:
        """Place these consumers; their module needs ``resource``."""
        for consumer in consumers:
            self.terms[consumer, resource.text] = GrantTerms(key=key)

    def issuer(self, provides: Callable[[StandInServer, Ledger], Provides[Thing, ThingAccess]] = Maker, at: Identity = ISSUER) -> Issuer:
        """An issuer's process, as it begins."""
        self.shown.clear()
        ledger = SteppingLedger(SqliteLedger(self.file))
        return Issuer(provides(self.server, ledger), at, self._terms, self._tell, self._clock, self._show)

    async def record(self, consumer: str = ORDERS, resource: Thing = ONE) -> Record:
        """What the ledger holds of a grant."""
        found = await SqliteLedger(self.file).read(resource.text, consumer)
        assert found is not None, f"no record of {resource.text} for {consumer}"
        return found

    async def states(self, consumer: str = ORDERS, resource: Thing = ONE) -> dict[int, str]:
        """The logins of a record by sequence number."""
        return {one.sequence: one.state for one in (await self.record(consumer, resource)).logins}

    def of_consumer(self, kind: type[Tell], consumer: str = ORDERS) -> list[Tell]:
        """What a consumer was told, of one kind."""
        return [tell for to, tell in self.told if to == consumer and isinstance(tell, kind)]

    async def _terms(self, consumer: str, resource: str) -> GrantTerms | None:
        self.asked.append((consumer, resource))
        await asyncio.sleep(0)
        if self.unanswered:
            raise Unanswered([Missing(question="terms-of.1", reason=Reason.NOBODY)])
        terms = self.terms.get((consumer, resource))
        if self.meanwhile is not None:
            await self.meanwhile()
        return terms

    async def _tell(self, tell: Tell, to: Identity) -> None:
        await asyncio.sleep(0)
        if self.unsent:
            raise NotSent(self.unsent)
        self.told.append((str(to), tell))
        await asyncio.sleep(0)

    def _clock(self) -> str:
        self.times += 1
        return f"2026-11-30T12:00:{self.times:06d}Z"

    def _show(self, name: str, reason: str | None) -> None:
        if reason is None:
            self.shown.pop(name, None)
        else:
            self.shown[name] = reason


Sealed = Granted | GrantRotated


def opened(sealed: Sealed, private: PrivateKey, consumer: str, resource: Thing = ONE, by: Identity = ISSUER) -> ThingAccess:
    """The access in a grant; raises CannotOpen."""
    purpose = purpose_of("access", consumer, resource.text, str(by), sealed.sequence)
    return ThingAccess.model_validate_json(private.open(sealed.sealed, purpose))


@dataclass
class HonestConsumer:
    """Asks, opens, uses, confirms, as a runtime does that is granted something."""

    mesh: Mesh
    name: str = ORDERS
    resource: Thing = ONE
    private: PrivateKey = field(default_factory=lambda: key(ORDERS))
    access: ThingAccess | None = None
    sequence: int = 0

    async def ask(self, issuer: Issuer) -> Granted | Refused:
        """One ask."""
        return await issuer.provide(ask_for(Thing)(resource=self.resource, key=str(self.private.public_key)), self.name)

    def enter(self, sealed: Sealed) -> None:
        """Open it and log in with it: entering is the trial. What is older than what is in use is left alone."""
        if sealed.sequence < self.sequence:
            return
        access = opened(sealed, self.private, self.name, self.resource)
        assert self.mesh.server.opens(access.user, access.password.get_secret_value()), f"{access.user} cannot log in"
        self.access, self.sequence = access, sealed.sequence

    async def confirm(self, issuer: Issuer, sequence: int = 0) -> None:
        """Tell that it uses what it entered."""
        tell = GrantConfirmed(resource=self.resource.text, sequence=sequence or self.sequence)
        await issuer.confirmed(tell, self.name)

    async def start(self, issuer: Issuer) -> Granted | Refused:
        """Ask, enter, confirm: the stage ``grants`` of a process that begins."""
        answer = await self.ask(issuer)
        if isinstance(answer, Granted):
            self.sequence = 0
            self.enter(answer)
            await self.confirm(issuer)
        return answer

    @property
    def works(self) -> bool:
        """Whether what it uses still logs in."""
        access = self.access
        return access is not None and self.mesh.server.opens(access.user, access.password.get_secret_value())

    def rotated(self) -> GrantRotated:
        """The rotated grant that it was told last."""
        told = self.mesh.of_consumer(GrantRotated, self.name)
        assert told, f"{self.name} was told of no rotation"
        tell = told[-1]
        assert isinstance(tell, GrantRotated)
        return tell


def act(act: str, consumer: str = "", resource: Thing | None = None) -> GrantAct:
    """An operator's act."""
    body = {"act": act, "consumer": consumer, "resource": resource.text if resource else ""}
    return acts_on(Thing).model_validate(body)


async def shown(work: Awaitable[GrantsShown | Refused]) -> GrantsShown:
    """What an act shows, which must not be refused."""
    outcome = await work
    assert isinstance(outcome, GrantsShown), outcome
    return outcome


async def granted(work: Awaitable[Granted | Refused]) -> Granted:
    """The grant, which must not be refused."""
    outcome = await work
    assert isinstance(outcome, Granted), outcome
    return outcome


async def refused(work: Awaitable[Granted | GrantsShown | Refused]) -> Refused:
    """The refusal, which must be one."""
    outcome = await work
    assert isinstance(outcome, Refused), outcome
    return outcome


def code_of(outcome: Granted | GrantsShown | Refused) -> str:
    """A refusal's code, or what else it is."""
    return outcome.code if isinstance(outcome, Refused) else outcome.outcome
