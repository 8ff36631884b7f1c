"""What operators do with grants: list, rotate, revoke, rekey. Each may be cut and asked again; an act that is done already is done."""

from mesh_runtime.contracts.granting import GrantAct, GrantRow, GrantsShown
from mesh_runtime.contracts.identity import BadName, Identity
from mesh_runtime.contracts.outcomes import Refused
from mesh_runtime.grants.judging import revoked as was_revoked
from mesh_runtime.grants.ledger import Login, Moved, Record
from mesh_runtime.grants.parts import Parts
from mesh_runtime.grants.records import LOOKS, moving
from mesh_runtime.grants.states import in_force, newest_in_force, reopened, revoked, rows, servable
from mesh_runtime.grants.trying import Failed

_PENDING = "was issued before and is not confirmed yet; no other was made"


class Acts:
    """Operators' acts on the grants of one issuer. Each may raise Fault."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def act(self, ask: GrantAct, by: str) -> GrantsShown | Refused:
        """Do it. ``by`` is the operator, as the broker knows him."""
        match ask.act:
            case "list":
                return await self._list(ask)
            case "rotate":
                return await self._rotate(ask)
            case "revoke":
                return await self._revoke(ask, by)
            case "rekey":
                return await self._rekey(ask)

    async def _list(self, ask: GrantAct) -> GrantsShown:
        orphans = await self._parts.orphans.look()
        kept = [one for one in await self._parts.records.all() if ask.consumer in ("", one.consumer) and ask.resource in ("", one.resource)]
        kept.sort(key=lambda one: (one.resource, one.consumer))
        shown = tuple(row for one in kept for row in self._rows(one))
        if isinstance(orphans, Failed):
            return GrantsShown(
                rows=shown, orphans=self._parts.orphans.known, done=f"the orphans are those of an earlier look: {orphans.why}"
            )
        return GrantsShown(rows=shown, orphans=orphans)

    async def _rotate(self, ask: GrantAct) -> GrantsShown | Refused:
        async with self._parts.records.lock(ask.resource):
            for _ in range(LOOKS):
                record = await self._parts.records.read(ask.resource, ask.consumer)
                if record is not None and record.revoked:
                    return was_revoked(record)
                if record is None or not in_force(record):
                    return await self._no_such_grant(ask)
                if not record.key:
                    why = f"{ask.consumer} was rekeyed and has not asked since: it gets a new login of {ask.resource} when it asks"
                    return Refused(code="no-key", why=why, again=True)
                newest = in_force(record)[-1]
                if newest.state == "issued" and servable(record, newest, self._parts.issuer):
                    return await self._told(record, newest, f"{newest.login} {_PENDING}")
                try:
                    made = await self._parts.maker.renew(record)
                except Moved:
                    continue
                if isinstance(made, Failed):
                    return made.refused()
                newest = in_force(made)[-1]
                return await self._told(made, newest, f"{newest.login} was made beside the login in force")
        return moving(ask.resource, ask.consumer).refused()

    async def _told(self, record: Record, login: Login, done: str) -> GrantsShown:
        unsent = await self._parts.notices.rotated(record, login)
        told = f"{record.consumer} could not be told yet ({unsent}); it is told again" if unsent else f"{record.consumer} was told"
        return GrantsShown(rows=self._rows(record), done=f"{done}; {told}")

    async def _revoke(self, ask: GrantAct, by: str) -> GrantsShown | Refused:
        words = f"by {by} at {self._parts.clock()}"
        marked = await self._parts.records.change(ask.resource, ask.consumer, lambda now: None if now.revoked else revoked(now, words))
        if marked is None:
            return await self._no_such_grant(ask)
        await self._parts.notices.ended(marked, f"revoked {marked.revoked}")
        ended, failed = await self._parts.retirer.finish(marked)
        left = await self._parts.records.read(ask.resource, ask.consumer) or marked
        done = f"revoked {marked.revoked}; ended: {', '.join(ended) or 'nothing was left'}"
        if failed is not None:
            done = f"{done}; not yet ended: {', '.join(one.login for one in left.logins)} ({failed.why}); it is repeated until it is done"
        return GrantsShown(rows=self._rows(left), done=done)

    async def _rekey(self, ask: GrantAct) -> GrantsShown | Refused:
        try:
            Identity.parse(ask.consumer)
        except BadName as bad:
            return Refused(code="bad-name", why=f"whose key is to be taken anew? {bad}")
        grants = [one for one in await self._parts.records.all() if one.consumer == ask.consumer]
        opened = [await self._parts.records.change(one.resource, one.consumer, reopened) for one in grants]
        shown = tuple(row for one in opened if one is not None for row in self._rows(one))
        return GrantsShown(rows=shown, done=f"{len(grants)} grants of {ask.consumer} take the key with which it asks next")

    async def _no_such_grant(self, ask: GrantAct) -> Refused:
        there = sorted(one.resource for one in await self._parts.records.all() if one.consumer == ask.consumer and newest_in_force(one))
        words = f"{ask.consumer} has no grant of {ask.resource} from {self._parts.issuer}"
        return Refused(code="no-such-grant", why=f"{words}; it has: {', '.join(there) or 'none'}")

    def _rows(self, record: Record) -> tuple[GrantRow, ...]:
        return rows(record, self._parts.issuer, self._parts.retirer.words(record))
