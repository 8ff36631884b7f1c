"""The end of a login: retired by its author's code, verified, and only then struck from its record. Repeated until it is done.

A login that is already gone is done. What cannot be ended is shown as a reason of the runtime's being degraded, from the first failure on.
"""

from collections.abc import Callable
from typing import Any

from mesh_runtime.grants.ledger import Login, Record
from mesh_runtime.grants.providing import Provides
from mesh_runtime.grants.records import Records
from mesh_runtime.grants.states import ending, without
from mesh_runtime.grants.trying import Failed, trying

#: Seconds for one ``retire``, and for one look at what there is.
BOUND = 30.0

#: Sets one reason for which the runtime works less well than it should, or clears it.
Show = Callable[[str, str | None], None]


class Retirer:
    """Ends logins for one issuer, and remembers in words what it could not end."""

    def __init__(self, provides: Provides[Any, Any], records: Records, show: Show) -> None:
        self._provides = provides
        self._records = records
        self._show = show
        self._failing: dict[tuple[str, str], str] = {}

    def words(self, record: Record) -> str:
        """Why logins of this record stand that should have ended; nothing if none has failed to."""
        return self._failing.get((record.resource, record.consumer), "")

    async def logins(self) -> frozenset[str] | Failed:
        """What there is now that carries the author's mark."""

        async def names() -> frozenset[str]:
            return frozenset(await self._provides.logins())

        return await trying(f"{type(self._provides).__name__}.logins", "logins-failed", names(), BOUND)

    async def end(self, login: str) -> Failed | None:
        """End one login and look whether it is gone; or how that failed. Call it under the lock of the resource."""
        author = type(self._provides).__name__
        failed = await trying(f"{author}.retire", "retire-failed", self._provides.retire(login), BOUND)
        if isinstance(failed, Failed):
            return failed
        names = await self.logins()
        if isinstance(names, Failed):
            return names
        if login in names:
            return Failed("not-gone", f"{author}.retire returned, and {login} is still there")
        return None

    async def finish(self, record: Record) -> tuple[tuple[str, ...], Failed | None]:
        """End all that is to end of this grant, as its record stands now. Returns what was ended, and what the last failure was.

        Takes the resource's lock for one login at a time, so that who asks for it meanwhile is answered in between. Raises Fault.
        """
        done: list[str] = []
        failed: Failed | None = None
        for login in ending(record):
            async with self._records.lock(record.resource):
                ended = await self._finish(record, login)
            if isinstance(ended, Failed):
                failed = ended
            elif ended:
                done.append(login.login)
        self._note(record, failed)
        return tuple(done), failed

    async def _finish(self, record: Record, login: Login) -> bool | Failed:
        """Whether this login was ended now; False if it is not to end, or not there, any more."""
        stored = await self._records.read(record.resource, record.consumer)
        if stored is None or not any(one.sequence == login.sequence for one in ending(stored)):
            return False
        failed = await self.end(login.login)
        if failed is not None:
            return Failed(failed.code, f"{login.login} cannot be ended: {failed.why}", failed.again)
        await self._records.change(record.resource, record.consumer, lambda now: without(now, login.sequence))
        return True

    def _note(self, record: Record, failed: Failed | None) -> None:
        grant = (record.resource, record.consumer)
        if failed is None:
            self._failing.pop(grant, None)
        else:
            self._failing[grant] = failed.why
        self._show(f"grant {record.resource} of {record.consumer}", failed.why if failed else None)
