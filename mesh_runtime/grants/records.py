"""An issuer's way to its ledger: one writer per resource, compare-and-set with a second look, failures in words."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from mesh_runtime.grants.ledger import Ledger, Moved, Record
from mesh_runtime.grants.trying import Failed, Fault, trying

#: Times that a change is tried when somebody else writes between its reading and its writing.
LOOKS = 8
#: Seconds for one call of a ledger.
CALL = 20.0

T = TypeVar("T")


class Records:
    """The records of one issuer. ``open`` gives its ledger; it is called at the first use, since ``prepare`` must have passed.

    What the ledger raises comes as ``Fault``, except ``Moved`` from ``write``.
    """

    def __init__(self, open_ledger: Callable[[], Ledger]) -> None:
        self._open = open_ledger
        self._ledger: Ledger | None = None
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def lock(self, resource: str) -> asyncio.Lock:
        """Held by whoever makes or ends a login of this resource: an author's code is called by one at a time."""
        return self._locks.setdefault(resource, asyncio.Lock())

    async def read(self, resource: str, consumer: str) -> Record | None:
        """As ``Ledger.read``."""
        return await self._call(lambda ledger: ledger.read(resource, consumer))

    async def all(self) -> tuple[Record, ...]:
        """As ``Ledger.all``."""
        return await self._call(lambda ledger: ledger.all())

    async def write(self, record: Record) -> Record:
        """As ``Ledger.write``; raises Moved."""
        return await self._call(lambda ledger: ledger.write(record))

    async def change(self, resource: str, consumer: str, change: Callable[[Record], Record | None]) -> Record | None:
        """Write what ``change`` makes of the stored record, as often as somebody else was quicker.

        Returns what now stands: the written record, or the stored one where ``change`` returns None; None if there is no record.
        """
        for _ in range(LOOKS):
            stored = await self.read(resource, consumer)
            if stored is None or (wanted := change(stored)) is None or wanted == stored:
                return stored
            try:
                return await self.write(wanted)
            except Moved:
                continue
        raise Fault(moving(resource, consumer))

    async def _call(self, call: Callable[[Ledger], Coroutine[Any, Any, T]]) -> T:
        async def work() -> T | Moved:
            if self._ledger is None:
                self._ledger = self._open()
            try:
                return await call(self._ledger)
            except Moved as moved:
                return moved

        result = await trying("the ledger", "ledger-failed", work(), CALL)
        if isinstance(result, Failed):
            raise Fault(result)
        if isinstance(result, Moved):
            raise result
        return result


def moving(resource: str, consumer: str) -> Failed:
    """The record of this grant is written by others all the time."""
    return Failed("moved", f"the record of {resource} for {consumer} is being written by somebody else: another issuer?")
