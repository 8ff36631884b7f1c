"""What must hold after each operation, however it was cut: one login that works, no other, no orphan, no write lost. Seen from outside."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg

from beds.accesses import CONSUMER, RESOURCE, log_in, until_refused
from beds.cuts.operations import LIST, Operations
from beds.cuts.rig import Rig
from beds.recording import StepFailed, check
from mesh_runtime.testing.waiting import until

#: Seconds until every tell that was confirmed is a row: until by itself, and when what was parked is handled again.
HANDLED, REPLAYED = 10.0, 40.0


class Invariants:
    """Checks them on a rig."""

    def __init__(self, rig: Rig, operations: Operations) -> None:
        self.rig = rig
        self.operations = operations
        self.written: set[str] = set()
        """Ids of which a row was seen."""
        self.replayed = 0
        """How often what was parked had to be handled again."""

    async def hold(self, operation: str) -> None:
        """Raise StepFailed or AssertionError for the first that does not hold."""
        shown = await self.rig.ask(LIST)
        rows = [row for row in shown.rows if row.consumer == CONSUMER]
        _, logins = await self.operations.look()
        check(not shown.orphans, f"there are orphans: {shown}")
        wanted = "revoked" if operation == "revoke" else "confirmed"
        check([row.state for row in rows] == [wanted], f"the issuer shows {rows}, not one row that is {wanted}")
        in_force = [] if operation == "revoke" else [rows[0].login]
        check(logins == in_force, f"the server has the logins {logins}, and {in_force} should be in force")
        if operation != "revoke":
            check(rows[0].sequence > self.operations.before, f"nothing was made: {rows} after {self.operations.before}")
            await log_in(self.operations.in_force(rows[0].sequence))
        for access in [one for one in self.operations.seen.values() if one.user not in in_force]:
            await until_refused(access, 0)
        self.operations.seen = {number: one for number, one in self.operations.seen.items() if one.user in in_force}
        if operation != "revoke":
            await self.nothing_lost()

    async def shown_to_operators(self) -> None:
        """``mesh grants --json`` says the same, in a process of its own. Raises StepFailed."""
        shown = json.loads((await self.rig.done("grants", "--json")).output)
        same = (await self.rig.ask(LIST)).rows
        rows = [(row["identity"], row["login"], row["state"]) for row in shown["grants"]]
        check(shown["whole"] and not shown["orphans"], f"mesh grants shows orphans, or not all have answered: {shown}")
        check(rows == [(row.consumer, row.login, row.state) for row in same], f"mesh grants shows {rows}, and the issuer says {same}")

    async def keep_rows(self) -> None:
        """Note the rows that there are."""
        try:
            rows = await asyncio.to_thread(self.rig.lab.postgres.query, "SELECT id FROM greeted", dbname=RESOURCE.name)
        except (psycopg.errors.UndefinedTable, psycopg.OperationalError):  # no table or no database
            return
        self.written |= {row[0] for row in rows}

    async def nothing_lost(self) -> None:
        """Every tell that the broker has confirmed by now is a row (the id is its key), or was one before its database was dropped."""
        self.rig.load.check()
        told = set(self.rig.load.confirmed)

        async def all_there() -> bool:
            await self.keep_rows()
            return told <= self.written

        try:
            return await self._until(all_there, HANDLED)
        except AssertionError:
            self.replayed += 1
        await self.rig.lab.mesh("parked", "replay", CONSUMER, "--all")
        try:
            await self._until(all_there, REPLAYED)
        except AssertionError:
            lost = sorted(told - self.written)
            raise StepFailed(f"{len(lost)} of {len(told)} confirmed tells are no row: {lost[:20]}") from None

    async def _until(self, condition: Callable[[], Coroutine[Any, Any, bool]], within: float) -> None:
        await until(condition, "every confirmed tell is a row", within=within, every=0.2)
