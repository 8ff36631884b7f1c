"""The three operations, each from its beginning to where nothing of it is left to do, however it was cut: issue, rotate, revoke.

What was killed is started again at once, and the operation is asked again by whoever would: a consumer asks by itself, an operator repeats
the command until it says that it is done.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import psycopg

from beds.accesses import CONSUMER, RESOURCE, open_access
from beds.cuts.rig import READY, Rig
from beds.cuts.steps import PROVISIONER, Step
from beds.lab import Ran
from beds.recording import StepFailed, check
from mesh_runtime.contracts.database import Database, DatabaseAccess
from mesh_runtime.contracts.granting import acts_on
from mesh_runtime.contracts.operating import Rekey
from mesh_runtime.grants.ledger import Record
from mesh_runtime.testing.waiting import until
from mesh_runtime.trust.sealing import CannotOpen

OPERATIONS = ("issue", "rotate", "revoke")

#: Seconds until an operation has come to its end by itself: more than two sweeps.
SETTLES = 150.0
#: Seconds in which a step that belongs to an operation passes after all else is done, and in which nothing more must come.
TRAILS, QUIET = 4.0, 0.7

_ACT = acts_on(Database)
#: What an operator asks an issuer to see all its grants.
LIST = _ACT(act="list")
_LOOK = """SELECT (SELECT record FROM mesh_ledger.grants WHERE resource = %s AND consumer = %s),
    array(SELECT rolname::text FROM pg_roles WHERE shobj_description(oid, 'pg_authid') LIKE %s ORDER BY rolname)"""
_LOGINS = '%"kind":"login"%'


class Operations:
    """Performs operations on a rig. ``seen`` are all accesses that were ever handed out in its sight, by sequence number."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.seen: dict[int, DatabaseAccess] = {}
        self.before = 0
        """The greatest sequence number before the operation."""
        self.took = 0.0
        """Seconds that the last one took to its end, with all that was started again."""

    async def prepare(self, operation: str, keep_rows: Callable[[], Awaitable[None]], catch_up: Callable[[], Awaitable[None]]) -> None:
        """Bring the mesh to where the operation begins.

        An issue begins with nothing: no login, no database, no owner role. The others begin with a consumer that has no backlog: what it is
        told of its grant stands in its queue behind whatever was told to it before.

        ``keep_rows`` is called before rows are dropped with their database; ``catch_up`` waits until every tell is a row.
        """
        rig = self.rig
        record, _ = await self.look()
        granted = record is not None and not record.revoked and bool(record.logins)
        if operation == "issue":
            if granted:
                await rig.consumer.kill()
                await rig.ask(_ACT(act="revoke", consumer=CONSUMER, resource=RESOURCE.text))
            await rig.consumer.kill()
            await keep_rows()
            for statement in (f"DROP DATABASE IF EXISTS {RESOURCE.name} WITH (FORCE)", f"DROP ROLE IF EXISTS {RESOURCE.name}"):
                await asyncio.to_thread(rig.lab.postgres.query, statement)
            await self._rekey()
        elif not granted:
            await rig.consumer.kill()
            await self._rekey()
            await rig.consumer.start()
            await self._settled("issue")
        if operation != "issue":
            await catch_up()
        record, _ = await self.look()
        self.before = record.sequence if record is not None else 0
        await self._quiet()

    async def _rekey(self) -> None:
        await self.rig.ask(Rekey(identity=CONSUMER))
        await self.rig.ask(_ACT(act="rekey", consumer=CONSUMER))

    async def perform(self, operation: str, step: Step | None = None, victim: str = "") -> bool:
        """The operation to its end; ``victim`` is killed at ``step``. Returns whether that step came."""
        rig, cut, begun = self.rig, asyncio.Event(), time.monotonic()

        async def kill() -> None:
            await rig.kill(victim)
            cut.set()

        async def mend() -> None:
            await cut.wait()
            await rig.revive()

        rig.watch.begin(step, victim, kill if step is not None else None)
        mending = asyncio.create_task(mend(), name="mending")
        try:
            if operation == "issue":
                await rig.consumer.start()
            else:
                await self._commanded(operation, cut, victim, mending)
            await self._settled(operation)
            if step is not None and not cut.is_set():
                with suppress(AssertionError):
                    await until(cut.is_set, "the step comes", within=TRAILS)
            elif step is None:
                await self._quiet()
        finally:
            rig.watch.end()
            if not cut.is_set():
                mending.cancel()
            await asyncio.gather(mending, return_exceptions=not cut.is_set())
        await self._settled(operation)
        self.took = time.monotonic() - begun
        return cut.is_set()

    async def _commanded(self, operation: str, cut: asyncio.Event, victim: str, mending: "asyncio.Task[None]") -> None:
        """The operator's command, repeated until it says that it is done."""
        said = []
        for _ in range(8):
            ran = await self._command(operation, cut if victim == PROVISIONER else asyncio.Event())
            if ran is not None and ran.code == 0:
                return
            said.append("interrupted" if ran is None else f"exit {ran.code}: {ran.output.strip()}")
            if cut.is_set():
                await mending
                await self.rig.ready(*self.rig.lab.runtimes.values(), self.rig.provisioner)
                cut = asyncio.Event()
        raise StepFailed(f"mesh {operation} was not done, however often it was repeated: {said}")

    async def _command(self, operation: str, dead: asyncio.Event) -> Ran | None:
        """Once. An operator who sees that its issuer is dead interrupts it instead of waiting for its time-out: nothing is returned."""
        running = asyncio.create_task(self.rig.lab.mesh(operation, CONSUMER, RESOURCE.text), name=f"mesh {operation}")
        dying = asyncio.create_task(dead.wait())
        await asyncio.wait([running, dying], return_when=asyncio.FIRST_COMPLETED)
        interrupted = not running.done()
        for one in (running, dying):
            one.cancel()
        await asyncio.gather(running, dying, return_exceptions=True)
        return None if interrupted else running.result()

    async def _quiet(self) -> None:
        """Wait until nothing has passed for a while."""
        while True:
            passed = self.rig.watch.passed
            await asyncio.sleep(QUIET)
            if self.rig.watch.passed == passed:
                return

    # ------------------------------------------------------------------------------------------------ its end

    async def _settled(self, operation: str) -> None:
        """Wait until the ledger and the server say that the operation is over, and the consumer stands where it must."""
        seen = "nothing"

        async def over() -> bool:
            nonlocal seen
            try:
                record, logins = await self.look()
            except psycopg.Error as error:
                seen = str(error)
                return False
            if record is None:
                return False
            self._note(record)
            states = [(one.login, one.state) for one in record.logins]
            seen = f"record {states}, revoked {record.revoked!r}; logins at the server {logins}"
            if operation == "revoke":
                return bool(record.revoked) and not states and not logins
            newest = record.logins[-1] if len(record.logins) == 1 else None
            return newest is not None and newest.state == "confirmed" and newest.sequence > self.before and logins == [newest.login]

        try:
            await until(over, f"{operation} is over", within=SETTLES, every=0.2)
        except AssertionError:
            raise StepFailed(f"{operation} has not come to its end within {SETTLES:g} s: {seen}") from None
        if operation == "revoke":
            await self.rig.ready(*self.rig.lab.runtimes.values(), self.rig.provisioner)
            await self.rig.consumer.states.until_at("grants", "blocked", "revoked", within=READY)
        else:
            await self.rig.ready()

    async def look(self) -> tuple[Record | None, list[str]]:
        """The record of the grant, and the names of all logins at the server that the provisioner has made. Raises psycopg.Error."""
        query = self.rig.lab.postgres.query
        ((record, logins),) = await asyncio.to_thread(query, _LOOK, RESOURCE.text, CONSUMER, _LOGINS)
        return Record.model_validate_json(record) if record else None, logins

    def _note(self, record: Record) -> None:
        for one in record.logins:
            if one.sequence not in self.seen and one.state != "drawn":
                with suppress(CannotOpen):  # it was drawn and never issued
                    self.seen[one.sequence] = open_access(self.rig.lab, one)

    def in_force(self, sequence: int) -> DatabaseAccess:
        """What was handed out under this number."""
        check(sequence in self.seen, f"the access number {sequence} was never seen in the ledger; seen: {sorted(self.seen)}")
        return self.seen[sequence]
