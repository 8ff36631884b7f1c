"""What an issuer tells consumers unasked: that a grant was rotated, that it has ended.

A tell that was sent may still be lost before it is understood, so a rotated grant is told again until it is confirmed, seldomer each time:
a consumer that is down for a week is not to find ten thousand of them.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from mesh_runtime.contracts.base import Tell
from mesh_runtime.contracts.granting import GrantRevoked, GrantRotated
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.grants.ledger import Login, Record
from mesh_runtime.telling import NotSent, SendUnknown

log = structlog.stdlib.get_logger(__name__)

#: Tells one identity; raises NotSent or SendUnknown.
SendTell = Callable[[Tell, Identity], Awaitable[object]]

#: Seconds until a rotated grant is told again: after the first time, and at most.
AGAIN_FIRST, AGAIN_LAST = 55.0, 3600.0


class Notices:
    """Tells on behalf of one issuer. What could not be sent is due again at once, as its answer says."""

    def __init__(self, tell: SendTell) -> None:
        self._tell = tell
        self._next: dict[tuple[str, str, int], tuple[float, float]] = {}
        self._ended: set[tuple[str, str, int]] = set()

    def due(self, record: Record, login: Login) -> bool:
        """Whether this login is to be told, or told again, by now."""
        at, _ = self._next.get((record.resource, record.consumer, login.sequence), (0.0, 0.0))
        return asyncio.get_running_loop().time() >= at

    async def rotated(self, record: Record, login: Login) -> str:
        """Tell the consumer its new login. Returns why that could not be done, or nothing."""
        tell = GrantRotated(resource=record.resource, sequence=login.sequence, key=login.key, sealed=login.sealed)
        if words := await self._send(tell, record.consumer):
            return words
        grant = (record.resource, record.consumer, login.sequence)
        _, gap = self._next.get(grant, (0.0, 0.0))
        gap = min(2 * gap or AGAIN_FIRST, AGAIN_LAST)
        self._next[grant] = (asyncio.get_running_loop().time() + gap, gap)
        return ""

    def confirmed(self, record: Record) -> None:
        """Forget when this grant was told."""
        for grant in [one for one in self._next if one[:2] == (record.resource, record.consumer)]:
            del self._next[grant]

    def untold(self, record: Record) -> bool:
        """Whether this process has not told yet that the grant has ended."""
        return (record.resource, record.consumer, record.sequence) not in self._ended

    async def ended(self, record: Record, why: str) -> str:
        """Tell the consumer that its grant has ended. Returns why that could not be done, or nothing."""
        tell = GrantRevoked(resource=record.resource, sequence=record.sequence, why=why)
        words = await self._send(tell, record.consumer)
        if not words:
            self._ended.add((record.resource, record.consumer, record.sequence))
        return words

    async def _send(self, tell: Tell, consumer: str) -> str:
        try:
            await self._tell(tell, Identity.parse(consumer))
        except (NotSent, SendUnknown) as unsent:
            log.info("a consumer could not be told", consumer=consumer, tell=tell.type_name(), why=str(unsent))
            return str(unsent)
        return ""
