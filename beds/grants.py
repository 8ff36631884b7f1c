"""Steps of grants on a real PostgreSQL: a login is issued and used, rotated under load without a failed write, revoked and refused.

The consumer is the guide's example, installed as its author would; what its login can do is tried from outside, with the login itself: the
bed opens the issuer's own record with the consumer's key, which only the lab can.
"""

import asyncio
import json
import time
from typing import Any

from beds.accesses import CONSUMER, RESOURCE, log_in, open_access, read_record, until_refused
from beds.greeting import MODULE, Load
from beds.lab import MACHINE, Lab, Ran
from beds.recording import Facts, check
from mesh_runtime.contracts.database import DatabaseAccess
from mesh_runtime.testing.waiting import until

#: Tells a second, and seconds of them before and after a rotation.
RATE, BEFORE, AFTER = 200.0, 1.0, 1.0
#: Seconds that a grant, a rotation or a revocation may take on a busy machine.
WITHIN = 20.0


class Granting:
    """The consumer, its issuer, and what is seen of them."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    async def start(self) -> None:
        """Issuer and consumer are placed, and started before their server: they wait in process."""
        database, motd = self.lab.grantees["database"], self.lab.grantees[MODULE]
        await self._done("place", "database", MACHINE)
        key = self.lab.founded.public_key(MODULE)
        await self._done("place", MODULE, MACHINE, "greeting=Welcome.", "--key", str(key))
        await asyncio.gather(*(one.start() for one in (database, motd) if not one.running))
        if not self.lab.postgres.running:
            await database.states.until_at("prepare", "waiting")
            await motd.states.until_at("grants", "waiting")

    async def granted(self) -> Facts:
        """The server comes. Ready by its grant; a tell becomes a row; the operator sees it; the login works from outside."""
        if not self.lab.postgres.running:
            await asyncio.to_thread(self.lab.postgres.start)
        await asyncio.gather(*(one.states.until_ready(WITHIN) for one in self.lab.grantees.values()))
        load = Load(self.lab.founded, self.lab.founded.identity("bed"), RATE)
        await load.run("first", asyncio.Event(), most=20)
        check(not load.failed, f"not all tells were sent: {load.failed}")
        rows = await self._rows(load.sent)
        row = await self._shown("confirmed")
        access = await self._access(row["sequence"])
        await log_in(access)
        return {"grant": row, "rows": rows, "login_works": True}

    async def rotated(self) -> Facts:
        """Rotated in the middle of a load: every tell is a row, once; nothing failed; the old login is refused."""
        old = await self._shown("confirmed")
        access = await self._access(old["sequence"])
        over = asyncio.Event()
        load = Load(self.lab.founded, self.lab.founded.identity("bed"), RATE)
        running = asyncio.ensure_future(load.run(f"load-{old['sequence']}", over))
        try:
            await asyncio.sleep(BEFORE)
            await self._done("rotate", CONSUMER, RESOURCE.text)
            new = await self._shown("confirmed", above=old["sequence"])
            await asyncio.sleep(AFTER)
        finally:
            over.set()
            await running
        rows = await self._rows(load.sent)
        failed = self.lab.grantees[MODULE].logs.records(event="a handler of tells raised")
        facts: Facts = {"told": len(load.sent), "rows": rows, "not_sent": load.failed, "failed": len(failed), "old": old, "new": new}
        check(not load.failed and not failed, "a tell failed", **facts)
        refusal = await until_refused(access, WITHIN)
        await log_in(await self._access(new["sequence"]))
        return {**facts, "old_login": refusal}

    async def revoked(self) -> Facts:
        """Revoked: the login is refused, and its consumer is blocked, in the issuer's words."""
        row = await self._shown("confirmed")
        access = await self._access(row["sequence"])
        await self._done("revoke", CONSUMER, RESOURCE.text)
        refusal = await until_refused(access, WITHIN)
        seen = await self.lab.grantees[MODULE].states.until_at("grants", "blocked", within=WITHIN)
        gone = await self._shown("revoked")
        return {"login": refusal, "consumer": seen["cause"]["text"], "grant": gone}

    # ------------------------------------------------------------------------------------------------ parts of steps

    async def _done(self, *arguments: str) -> Ran:
        ran = await self.lab.mesh(*arguments)
        check(ran.code == 0, f"{ran.command}: exit {ran.code}: {ran.output.strip()}")
        return ran

    async def _rows(self, told: list[str]) -> int:
        """How many rows there are of what was told: all of them, each once (the id is the key)."""
        ask = "SELECT count(*) FROM greeted WHERE id = ANY(%s)"
        seen, grown = 0, time.monotonic()
        while seen < len(told):
            ((count,),) = await asyncio.to_thread(self.lab.postgres.query, ask, told, dbname=RESOURCE.name)
            if count > seen:
                seen, grown = count, time.monotonic()
            check(time.monotonic() - grown < WITHIN, f"of {len(told)} tells {seen} are rows, and there come no more")
            await asyncio.sleep(0.2)
        return seen

    async def _shown(self, state: str, above: int = -1) -> dict[str, Any]:
        """The consumer's only row in ``mesh grants``, once it is in this state."""
        seen: dict[str, Any] = {}

        async def there() -> bool:
            ran = await self.lab.mesh("grants", "--json")
            check(ran.code == 0, f"{ran.command}: exit {ran.code}: {ran.output.strip()}")
            rows = [row for row in json.loads(ran.output)["grants"] if row["identity"] == CONSUMER]
            seen.update(rows[0] if rows else {})
            return len(rows) == 1 and rows[0]["state"] == state and rows[0]["sequence"] > above

        await until(there, f"{CONSUMER} has one login, {state}", within=WITHIN, every=0.3)
        return seen

    async def _access(self, sequence: int) -> DatabaseAccess:
        """What the consumer was handed under this number."""
        kept = await read_record(self.lab)
        (login,) = [one for one in (kept.logins if kept else ()) if one.sequence == sequence]
        return open_access(self.lab, login)
