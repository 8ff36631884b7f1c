"""The data channel without confirmations: publishes at once, hands deliveries on in the call in which their bytes came.

Asks and their replies go over a *wire*: the reply is the confirmation, and a message that nobody is bound to comes back in milliseconds. So
``publish`` waits for nothing; whoever sends bounds what is in flight and watches ``Session.backlog``.

The other kind, ``ConfirmedChannel``, and the messages stand in files of their own and are named here too.
"""

import itertools
from collections.abc import Callable

from pamqp import commands

from mesh_runtime.broker.confirms import ConfirmedChannel
from mesh_runtime.broker.content import ContentChannel
from mesh_runtime.broker.decoding import Head
from mesh_runtime.broker.faults import ChannelLost, SessionLost
from mesh_runtime.broker.link import Link
from mesh_runtime.broker.messages import Consumer, Delivery, Properties, Returned
from mesh_runtime.broker.publishing import Publisher
from mesh_runtime.broker.settling import Settling

__all__ = ["ConfirmedChannel", "Consumer", "Delivery", "Properties", "Returned", "Wire"]

_CANCEL = 0x003C001E


class Wire(ContentChannel):
    """An open channel without confirmations. Made by ``Session.wire``.

    Callbacks are called while bytes are received: they must return at once and must not raise (what they raise ends the session).
    """

    def __init__(self, link: Link, number: int, frame_max: int, *, answers_cancel: bool = False) -> None:
        super().__init__(link, number, frame_max)
        self.on_returned: Callable[[Returned], None] = lambda _: None  #: A mandatory message that no queue is bound to came back.
        self.on_lost: Callable[[str], None] = lambda _: None  #: The channel is over, with the reason; not called for ``close()``.
        self._publisher = Publisher(number, frame_max)
        self._settling = Settling(link, number)
        self._consumers: dict[bytes, Consumer] = {}
        self._tags = itertools.count(1)
        self._answers_cancel = answers_cancel
        self._no_ack: bool | None = None  # fixed by the first consumer: tags are counted over all of a channel's deliveries

    def publish(self, exchange: str, key: str, body: bytes, props: Properties, mandatory: bool = True) -> None:
        """Put a message out; it leaves with all others of this turn of the loop.

        Raises TooLarge, or SessionLost if the channel is over; nothing was written then.
        """
        if self.over is not None:
            raise self.over.again()
        self._link.send(self._publisher.frames(exchange, key, body, props, mandatory))

    async def consume(
        self,
        queue: str,
        on_delivery: Callable[[Delivery], None],
        *,
        no_ack: bool = False,
        prefetch: int = 0,
        exclusive: bool = False,
        on_cancelled: Callable[[str], None] | None = None,
    ) -> Consumer:
        """Subscribe to a queue; deliveries may come before this returns.

        ``prefetch`` bounds what is unsettled at a time (0: nothing does; it does not bound with ``no_ack``). One acknowledging consumer a
        channel, since acknowledgements settle prefixes. Raises StageFault (topology), after which the session is over, or SessionLost.
        """
        if self._no_ack not in (None, no_ack) or (self._consumers and not no_ack):
            raise ValueError(f"a channel that acknowledges has one consumer and no other kind; open another for {queue!r}")
        self._no_ack = no_ack
        if prefetch:
            await self.call(commands.Basic.Qos(prefetch_count=prefetch), f"for {queue!r}")
        tag = f"c{next(self._tags)}"
        consumer = Consumer(self, tag, queue, on_delivery, no_ack, on_cancelled)
        self._consumers[tag.encode()] = consumer
        request = commands.Basic.Consume(queue=queue, consumer_tag=tag, no_ack=no_ack, exclusive=exclusive)
        try:
            await self.call(request, f"of {queue!r}")
        except BaseException:  # also a cancellation: what comes for it now has no receiver
            self._consumers.pop(tag.encode(), None)
            raise
        return consumer

    async def cancel(self, consumer: Consumer | str) -> None:
        """Unsubscribe; what was delivered can still be settled. Raises as ``consume`` does."""
        tag = consumer if isinstance(consumer, str) else consumer.tag
        if tag.encode() not in self._consumers:
            return
        await self.call(commands.Basic.Cancel(consumer_tag=tag), tag)
        self._consumers.pop(tag.encode(), None)

    def ack(self, tag: int) -> None:
        """Settle a delivery as done. Leaves with this turn's other writes, or up to 100 ms later behind an unfinished one.

        Raises ValueError if it is settled already, SessionLost if the channel is over: the broker has taken it back then.
        """
        if self.over is not None:
            raise self.over.again()
        self._settling.ack(tag)

    def nack(self, tag: int, requeue: bool = True) -> None:
        """Give a delivery back to its queue, or drop it. Raises as ``ack`` does."""
        if self.over is not None:
            raise self.over.again()
        self._settling.nack(tag, requeue)

    def forget(self) -> None:
        """Close it without waiting. Acknowledgements of this turn still leave; what is unsettled goes back to its queue."""
        if self.over is None:
            self._settling.flush()
        super().forget()

    def _other_method(self, method: int, data: bytes, start: int, stop: int) -> None:
        if method != _CANCEL:
            super()._other_method(method, data, start, stop)
            return
        tag = data[start + 5 : start + 5 + data[start + 4]]
        consumer = self._consumers.pop(tag, None)
        if consumer is None:
            return
        if self._answers_cancel:  # RabbitMQ 4.3 and later wait for it; older ones close the channel for it
            self.send(commands.Basic.CancelOk(consumer_tag=consumer.tag))
        if consumer.on_cancelled is not None:
            consumer.on_cancelled(f"the broker ended the consumer of {consumer.queue!r} (was the queue deleted?)")

    def _delivered(self, method: tuple[bytes, int, bool, str, str], head: Head, body: bytes) -> None:
        tag, number, redelivered, exchange, key = method
        self._settling.delivered = number
        consumer = self._consumers.get(tag)
        if consumer is None:
            return
        _, type_, message_id, correlation_id, app_id, user_id, expiration, reply_to, headers, malformed = head
        consumer.on_delivery(
            Delivery(
                body,
                type_,
                message_id,
                correlation_id,
                app_id,
                user_id,
                expiration,
                reply_to,
                headers,
                exchange,
                key,
                number,
                redelivered,
                self._link.heard,
                consumer,
                malformed,
            )
        )

    def _came_back(self, method: tuple[int, str, str, str], head: Head) -> None:
        code, text, exchange, key = method
        self.on_returned(Returned(head.message_id, head.correlation_id, head.type, code, text, exchange, key))

    def _ended(self, why: SessionLost) -> None:
        self._settling.stop()
        if not isinstance(why, ChannelLost):
            self.on_lost(str(why))
