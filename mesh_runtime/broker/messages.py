"""The messages that callers see: what they send with, what they receive, what comes back. No behaviour but settling."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mesh_runtime.broker.channel import Wire

#: Milliseconds. RabbitMQ refuses what is no integer and what is far larger; a day is longer than anybody waits here.
EXPIRATION_LEAST, EXPIRATION_MOST = 1, 86_400_000


class Properties(NamedTuple):
    """The envelope of one message: AMQP's own properties. The content type is always ``application/json``.

    A named tuple, not a frozen dataclass: one is made for each message, and this is several times cheaper.
    """

    type: str
    """Contract and major version, as ``overlay-peers.1``."""
    message_id: str
    """Never empty on a confirmed channel: a returned message is known by it."""
    correlation_id: str = ""
    reply_to: str = ""
    app_id: str = ""
    user_id: str = ""
    """The login. The broker closes the channel if it is another's (406)."""
    expiration: int | None = None
    """Milliseconds that the message may wait in a queue, clamped to one millisecond and one day; ``None``: no limit."""
    headers: Mapping[str, Any] | None = None
    persistent: bool = False
    """Written to disk where the queue is durable (delivery mode 2)."""


@dataclass(slots=True)
class Consumer:
    """One subscription of a channel, and the handle by which its deliveries are settled."""

    wire: "Wire" = field(repr=False)
    tag: str
    queue: str
    on_delivery: "Callable[[Delivery], None]"
    no_ack: bool
    on_cancelled: Callable[[str], None] | None = None
    """Called with the reason when the *broker* ends the subscription, as it does when the queue is deleted."""

    def ack(self, tag: int) -> None:
        """Settle a delivery as done; see ``Wire.ack``."""
        self.wire.ack(tag)

    def nack(self, tag: int, requeue: bool = True) -> None:
        """Give a delivery back, or drop it; see ``Wire.nack``."""
        self.wire.nack(tag, requeue)


@dataclass(slots=True)
class Delivery:
    """One message as it came. Absent properties are empty; nothing in it is to be believed but ``user_id``, which the broker checked."""

    body: bytes = field(repr=False)
    type: str
    message_id: str
    correlation_id: str
    app_id: str
    user_id: str
    expiration: str | None
    reply_to: str
    headers: dict[str, Any]
    exchange: str
    routing_key: str
    delivery_tag: int
    redelivered: bool
    received: float
    """Loop time at which its bytes came."""
    consumer: Consumer = field(repr=False)
    malformed: str = ""
    """Why the headers could not be decoded (they are then empty); empty for every sound message."""


class Returned(NamedTuple):
    """A message that the broker could not route and gave back."""

    message_id: str
    correlation_id: str
    type: str
    reply_code: int
    reply_text: str
    exchange: str
    routing_key: str
