"""The issuer: what stands between a provisioner's ``make``, ``check``, ``retire`` and everybody who asks it for something.

It promises that each of its operations may be cut between any two statements and asked again, and that nothing that can log in stands in
no record. It refuses in words whatever it will not do, and never holds a secret longer than it takes to make, try and seal it.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import structlog

from mesh_runtime.contracts.granting import GrantAct, GrantAsk, GrantConfirmed, Granted, GrantsShown, Resource
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.outcomes import Refused
from mesh_runtime.grants import states
from mesh_runtime.grants.acting import Acts
from mesh_runtime.grants.judging import Judge, Terms
from mesh_runtime.grants.ledger import Moved, Record
from mesh_runtime.grants.making import Maker
from mesh_runtime.grants.noticing import Notices, SendTell
from mesh_runtime.grants.orphans import Orphans
from mesh_runtime.grants.parts import Parts
from mesh_runtime.grants.providing import Provides
from mesh_runtime.grants.records import LOOKS, Records, moving
from mesh_runtime.grants.retiring import Retirer, Show
from mesh_runtime.grants.sweeping import Sweeper, Swept
from mesh_runtime.grants.trying import Failed, Fault, trying
from mesh_runtime.startup import Cause, Kind, Stage, climbing_waits
from mesh_runtime.trust.keys import BadKey
from mesh_runtime.trust.sealing import PublicKey

log = structlog.stdlib.get_logger(__name__)

#: Seconds from one whole sweep to the next.
EVERY = 60.0
#: Seconds for one sweep, in which each call has a bound of its own: for what nobody thought of.
SWEEP = 1800.0


def now_text() -> str:
    """The wall clock, UTC, ISO 8601, to the millisecond: for people, no decision rests on it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _shown_nowhere(name: str, reason: str | None) -> None:
    """For an issuer without a runtime's state."""


class Issuer:
    """Issues what ``provides`` makes, as ``identity``.

    ``terms`` says what the mesh says of a consumer and a resource: None is a fact; raises Unanswered. ``tell`` raises NotSent or
    SendUnknown. ``show`` sets or clears (None) a reason for which the runtime is degraded. The ledger is opened at the first use.
    """

    def __init__(
        self,
        provides: Provides[Any, Any],
        identity: Identity,
        terms: Terms,
        tell: SendTell,
        clock: Callable[[], str] = now_text,
        show: Show = _shown_nowhere,
    ) -> None:
        self._issuer = str(identity)
        self._clock = clock
        self._show = show
        self._records = Records(provides.ledger)
        self._judge = Judge(self._records, terms)
        retirer = Retirer(provides, self._records, show)
        self._maker = Maker(provides, self._issuer, self._records, retirer, clock)
        self._notices = Notices(tell)
        orphans = Orphans(self._records, retirer, show)
        parts = Parts(self._issuer, self._records, self._maker, retirer, self._notices, orphans, clock)
        self._acts = Acts(parts)
        self._sweeper = Sweeper(parts, terms, show)
        self._woken = asyncio.Event()

    async def provide(self, ask: GrantAsk, consumer: str) -> Granted | Refused:
        """Answer an ask of ``consumer``, whom the broker validated. Asked again by the same key, the same answer."""
        try:
            key = str(PublicKey.parse(ask.key))
        except BadKey as bad:
            return Refused(code="bad-key", why=f"{consumer} asks with a key that is none: {bad}")
        resource = ask.resource
        async with self._records.lock(resource.text):
            for _ in range(LOOKS):
                try:
                    return await self._provide(resource, key, consumer)
                except Moved:
                    continue
                except Fault as fault:
                    return fault.failed.refused()
        return moving(resource.text, consumer).refused()

    async def _provide(self, resource: Resource[Any], key: str, consumer: str) -> Granted | Refused:
        record = await self._records.read(resource.text, consumer)
        record = record or Record(resource=resource.text, fields=resource.model_dump_json(), consumer=consumer)
        refused = await self._judge.refuses(record, key)
        if refused is not None:
            return refused
        newest = states.newest_in_force(record)
        if newest is None or not states.servable(record, newest, self._issuer):
            made = await self._maker.make(record, resource, key)
            self._woken.set()  # what was drawn before, or drawn now in vain, is to be ended
            if isinstance(made, Failed):
                return made.refused()
            newest = states.in_force(made)[-1]
        return Granted(sequence=newest.sequence, key=newest.key, sealed=newest.sealed)

    async def confirmed(self, tell: GrantConfirmed, consumer: str) -> None:
        """Take note that ``consumer``, whom the broker validated, uses this login and nothing older. Late, twice, of a login that is
        unknown or has ended: it says nothing new. Where the ledger does not answer it is waited for, as long as the caller likes: this is
        told once, and a login that is not confirmed keeps its older ones alive.
        """
        record = await self._recorded(tell, consumer, self._clock())
        if record is None:
            log.warning("a grant was confirmed that was never made", consumer=consumer, resource=tell.resource, sequence=tell.sequence)
            return
        if states.pending(record, self._issuer) is None:
            self._notices.confirmed(record)
        self._woken.set()

    async def _recorded(self, tell: GrantConfirmed, consumer: str, now: str) -> Record | None:
        waits = climbing_waits()
        while True:
            try:
                return await self._records.change(tell.resource, consumer, lambda stored: states.confirmed(stored, tell.sequence, now))
            except Fault as fault:
                failed = fault.failed
                log.warning("a confirmation cannot be recorded yet", consumer=consumer, resource=tell.resource, why=failed.why)
            await asyncio.sleep(waits.after(Stage.GRANTS, Cause(Kind.WAITING, failed.code, failed.why)))

    async def act(self, ask: GrantAct, by: str) -> GrantsShown | Refused:
        """Do what an operator wants done; ``by`` is he, as the broker validated him."""
        try:
            return await self._acts.act(ask, by)
        except Fault as fault:
            return fault.failed.refused()
        finally:
            self._woken.set()

    async def sweep(self) -> Swept:
        """Sweep once; what could not be done is in its ``failed``."""
        return await self._swept(whole=True)

    async def run(self) -> None:
        """Sweep for ever: at once, every minute, and after each act; what failed, again at the pace of the stage ``grants``."""
        loop = asyncio.get_running_loop()
        waits = climbing_waits()
        due = loop.time()
        while True:
            self._woken.clear()
            whole = loop.time() >= due
            swept = await self._swept(whole)
            if whole:
                due = loop.time() + EVERY
            rest = due - loop.time()
            if swept.failed:
                rest = min(rest, waits.after(Stage.GRANTS, Cause(Kind.WAITING, "sweep", swept.failed[0])))
            else:
                waits.reset()
            try:
                async with asyncio.timeout(rest):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _swept(self, whole: bool) -> Swept:
        work = self._sweeper.sweep() if whole else self._sweeper.finish()
        swept = await trying("the sweep of grants", "sweep-failed", work, SWEEP)
        if isinstance(swept, Failed):
            self._show("grants' sweep", swept.why)
            return Swept(failed=(swept.why,))
        self._show("grants' sweep", None)
        return swept
