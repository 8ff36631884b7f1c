"""The sweep: what exists compared with the ledger, both ways, and whatever was cut brought to its end.

It never gives up and never ends anything without evidence: a question that is unanswered changes nothing.
"""

from dataclasses import dataclass, field

import structlog

from mesh_runtime.contracts.outcomes import Reason, Unanswered
from mesh_runtime.grants.judging import Terms
from mesh_runtime.grants.ledger import Moved, Record
from mesh_runtime.grants.parts import Parts
from mesh_runtime.grants.retiring import Show
from mesh_runtime.grants.states import ended, ending, in_force, newest_in_force, pending, servable
from mesh_runtime.grants.trying import Failed

log = structlog.stdlib.get_logger(__name__)

#: Why the next question of the same kind would not be answered either.
_NOT_NOW = (Reason.NOBODY, Reason.TIME_OUT, Reason.SESSION_LOST)


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did, by login or by ``resource for consumer``; ``failed`` says in words what it could not do."""

    retired: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


@dataclass(slots=True)
class _Sweep:
    """One sweep under way."""

    retired: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    orphans: tuple[str, ...] = ()
    failed: list[str] = field(default_factory=list)

    def swept(self) -> Swept:
        return Swept(*map(tuple, (self.retired, self.replaced, self.told, self.ended, self.orphans, self.failed)))


class Sweeper:
    """Sweeps for one issuer. Both kinds raise Fault where the ledger does not answer."""

    def __init__(self, parts: Parts, terms: Terms, show: Show) -> None:
        self._parts = parts
        self._terms = terms
        self._show = show

    async def finish(self) -> Swept:
        """The part that follows an act: what is to end is ended, and what is to be told is told."""
        sweep = _Sweep()
        await self._finish(sweep)
        return sweep.swept()

    async def sweep(self) -> Swept:
        """All of it. The placements come last: their answer may take the longest."""
        sweep = _Sweep()
        await self._replace(sweep)
        await self._finish(sweep)
        orphans = await self._parts.orphans.look()
        if isinstance(orphans, Failed):
            sweep.failed.append(orphans.why)
        else:
            sweep.orphans = orphans
        await self._end_with_placements(sweep)
        return sweep.swept()

    async def _finish(self, sweep: _Sweep) -> None:
        for record in await self._parts.records.all():
            if ending(record):
                await self._retire(record, sweep)
            login = pending(record, self._parts.issuer)
            if login is not None and self._parts.notices.due(record, login):
                self._note_told(sweep, record, await self._parts.notices.rotated(record, login))
            if record.revoked and self._parts.notices.untold(record):
                self._note_told(sweep, record, await self._parts.notices.ended(record, f"revoked {record.revoked}"))

    async def _retire(self, record: Record, sweep: _Sweep) -> None:
        done, failed = await self._parts.retirer.finish(record)
        sweep.retired.extend(done)
        if failed is not None:
            sweep.failed.append(failed.why)

    async def _replace(self, sweep: _Sweep) -> None:
        """A login in force that is gone is replaced as by a rotation: somebody dropped it, or the server was restored from a backup."""
        names = await self._parts.retirer.logins()
        if isinstance(names, Failed):
            sweep.failed.append(names.why)
            return
        for record in await self._parts.records.all():
            if not self._is_lost(record, names):
                self._show(_replacing(record), None)
                continue
            async with self._parts.records.lock(record.resource):
                await self._replace_one(record, sweep)

    async def _replace_one(self, record: Record, sweep: _Sweep) -> None:
        stored = await self._parts.records.read(record.resource, record.consumer)
        names = await self._parts.retirer.logins()
        if stored is None or isinstance(names, Failed) or not self._is_lost(stored, names):
            return
        log.warning("a login in force is gone and is replaced", consumer=record.consumer, resource=record.resource)
        try:
            made = await self._parts.maker.renew(stored)
        except Moved:
            return
        if isinstance(made, Failed):
            sweep.failed.append(made.why)
            self._show(_replacing(record), f"the login in force is gone, and another could not be made: {made.why}")
            return
        newest = in_force(made)[-1]
        sweep.replaced.append(newest.login)
        self._note_told(sweep, made, await self._parts.notices.rotated(made, newest))

    def _is_lost(self, record: Record, names: frozenset[str]) -> bool:
        newest = newest_in_force(record)
        return newest is not None and not record.revoked and servable(record, newest, self._parts.issuer) and newest.login not in names

    async def _end_with_placements(self, sweep: _Sweep) -> None:
        for record in await self._parts.records.all():
            if record.revoked or not (record.key or in_force(record)):
                continue
            try:
                terms = await self._terms(record.consumer, record.resource)
            except Unanswered as unanswered:
                sweep.failed.append(f"whether {record.consumer} still has its placement: {unanswered}")
                if any(reason in _NOT_NOW for reason in unanswered.reasons):
                    return
                continue
            if terms is None:
                await self._end(record, sweep)

    async def _end(self, record: Record, sweep: _Sweep) -> None:
        """Only the record as it stood when the controller was asked: whoever was placed and answered since is another matter."""
        why = f"{record.consumer} is not placed any more, or its module needs {record.resource} no longer; so said the controller"
        try:
            stored = await self._parts.records.write(ended(record))
        except Moved:
            return
        log.warning("a grant ends with its placement", consumer=record.consumer, resource=record.resource, at=self._parts.clock())
        sweep.ended.append(f"{record.resource} for {record.consumer}")
        await self._parts.notices.ended(stored, why)
        await self._retire(stored, sweep)

    def _note_told(self, sweep: _Sweep, record: Record, unsent: str) -> None:
        if unsent:
            sweep.failed.append(f"{record.consumer} could not be told: {unsent}")
        else:
            sweep.told.append(f"{record.resource} for {record.consumer}")


def _replacing(record: Record) -> str:
    return f"replacing {record.resource} of {record.consumer}"
