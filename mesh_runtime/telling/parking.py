"""Putting a tell aside that cannot be handled: into the receiver's own ``parked`` queue, with its reason, for a person to see.

The copy is confirmed before the original is acknowledged, so a tell is in one place or the other at every moment, or for a moment in both.
Asks are never parked: their asker is waiting and is answered instead.
"""

import struct
from datetime import UTC, datetime
from uuid import uuid4

from mesh_runtime.asking.scope import carried
from mesh_runtime.broker import ConfirmedChannel, Delivery, Properties, TooLarge
from mesh_runtime.contracts import wire
from mesh_runtime.logging import mask_text

#: Characters of a reason that travel with a parked tell.
REASON_LIMIT = 1000
#: What the encoder raises for a header that a foreign sender could write and it cannot.
UNWRITABLE = (ValueError, TypeError, struct.error, ArithmeticError, RecursionError)


def now() -> str:
    """The wall clock's time in UTC, ISO 8601: for people."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


#: Headers that speak to a broker, not to a receiver: sent again under this login they would route, or lie.
_BROKERS_OWN = frozenset({"CC", "BCC", "x-death", "x-delivery-count", "x-first-death-exchange", "x-first-death-queue"})


async def park(channel: ConfirmedChannel, me: str, delivery: Delivery, reason: str, count: int, first: str, timeout: float) -> None:
    """Copy ``delivery`` into the parked queue of ``me``; returns once the broker has confirmed it, else raises as ``publish`` does.

    ``count`` is how often it was tried, ``first`` when for the first time. The body and the headers stay as they came; headers that are
    the broker's own are left out, and all of them where they leave no room for the reason or cannot be written again.
    """
    mark = {
        wire.PARK_REASON: mask_text(reason)[:REASON_LIMIT],
        wire.PARK_COUNT: count,
        wire.PARK_FIRST: first,
        wire.PARK_LAST: now(),
        wire.PARK_SENDER: delivery.user_id,
    }
    kept = {name: value for name, value in delivery.headers.items() if name not in _BROKERS_OWN}
    properties = Properties(
        type=carried(delivery.type),
        message_id=carried(delivery.message_id) or uuid4().hex,
        correlation_id=carried(delivery.correlation_id),
        app_id=carried(delivery.app_id),
        user_id=me,
        headers={**kept, **mark},
        persistent=True,
    )
    key = wire.parked_key(me)
    try:
        await channel.publish(wire.TELLS, key, delivery.body, properties, timeout=timeout, as_received=True)
    except (TooLarge, *UNWRITABLE):
        await channel.publish(wire.TELLS, key, delivery.body, properties._replace(headers=mark), timeout=timeout, as_received=True)
