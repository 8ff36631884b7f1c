"""Logins that carry the issuer's mark and stand in no record: named, shown, and left alone, since nobody knows whose they are."""

from mesh_runtime.grants.records import Records
from mesh_runtime.grants.retiring import Retirer, Show
from mesh_runtime.grants.trying import Failed

#: Orphans that are named in the runtime's state.
NAMED = 20


class Orphans:
    """Looks for orphans of one issuer, and shows those of the last look."""

    def __init__(self, records: Records, retirer: Retirer, show: Show) -> None:
        self._records = records
        self._retirer = retirer
        self._show = show
        self.known: tuple[str, ...] = ()

    async def look(self) -> tuple[str, ...] | Failed:
        """The orphans that there are now. Raises Fault.

        A login stands in a record before it is made and until it is gone. So what was there before the records were read, is in none of
        them, and is there still, was never drawn here.
        """
        before = await self._retirer.logins()
        if isinstance(before, Failed):
            return before
        recorded = {login.login for record in await self._records.all() for login in record.logins}
        strange = before - recorded
        if strange:
            after = await self._retirer.logins()
            if isinstance(after, Failed):
                return after
            strange &= after
        self.known = tuple(sorted(strange))
        names = ", ".join(self.known[:NAMED]) + (", ..." if len(self.known) > NAMED else "")
        self._show("grants' orphans", f"{len(self.known)} logins stand in no record and are left alone: {names}" if strange else None)
        return self.known
