"""Who may have a grant: judged by the record, by the module that the resource belongs to, and once, at the first ask, by the controller."""

from collections.abc import Awaitable, Callable

from mesh_runtime.contracts.granting import GrantTerms
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.outcomes import Refused, Unanswered
from mesh_runtime.grants.ledger import Record
from mesh_runtime.grants.records import Records

#: What the mesh says of a consumer and a resource (its text). None is a fact: not placed, or it does not need it. Raises Unanswered.
Terms = Callable[[str, str], Awaitable[GrantTerms | None]]


class Judge:
    """Says why a consumer may not have a grant now, or nothing."""

    def __init__(self, records: Records, terms: Terms) -> None:
        self._records = records
        self._terms = terms

    async def refuses(self, record: Record, key: str) -> Refused | None:
        """Why the consumer of ``record`` (perhaps never written) is not answered, asking with ``key``. Raises Fault."""
        if record.revoked:
            return revoked(record)
        if not record.granted and (refused := await self._by_owner(record)) is not None:
            return refused
        if record.key:
            return None if record.key == key else _other_key(record, record.key, key)
        try:
            terms = await self._terms(record.consumer, record.resource)
        except Unanswered as unanswered:
            why = f"whether {record.consumer} may have {record.resource} is not known now: {unanswered}"
            return Refused(code="unanswered", why=why, again=True, unanswered=unanswered.missing)
        if terms is None:
            why = f"{record.consumer} is not placed, or the manifest of its module does not need {record.resource}"
            return Refused(code="not-needed", why=why)
        return _other_key(record, terms.key, key) if terms.key and terms.key != key else None

    async def _by_owner(self, record: Record) -> Refused | None:
        """A resource belongs to the module that was first granted it, whatever became of that grant: its data is there."""
        mine = Identity.parse(record.consumer).module
        owners = {one.consumer for one in await self._records.all() if one.resource == record.resource and one.granted}
        others = sorted(one for one in owners if Identity.parse(one).module != mine)
        if not others:
            return None
        whose = f"{record.resource} belongs to the module {Identity.parse(others[0]).module}, granted to {', '.join(others)}"
        return Refused(code="other-owner", why=f"{whose}; {record.consumer} is of another module")


def revoked(record: Record) -> Refused:
    """The grant was ended by an operator."""
    return Refused(
        code="revoked",
        why=f"the grant of {record.resource} for {record.consumer} was revoked {record.revoked}, until `mesh rekey {record.consumer}`",
    )


def _other_key(record: Record, known: str, asking: str) -> Refused:
    words = f"{record.resource} is granted to {record.consumer} with the key {known}, and is asked for with the key {asking}"
    return Refused(code="other-key", why=f"{words}: another key is taken after `mesh rekey {record.consumer}`")
