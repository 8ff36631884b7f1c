"""The data channel that fetches: one message at a time, each when it is asked for, and a plain word when the queue has no more.

For queues that are looked through by a person's order and not worked off: a consumer would be sent more than is looked at, and is never
told that it has seen all. Everything that was fetched is settled by ``ack`` or ``nack``; what is not goes back when the channel closes.
Source: AMQP 0-9-1, ``basic.get``. On a quorum queue each fetch is a write of its own, so this is for hundreds, not for millions.
"""

import asyncio
from typing import Any

from pamqp import commands

from mesh_runtime.broker import decoding
from mesh_runtime.broker.channel import Wire
from mesh_runtime.broker.link import Link
from mesh_runtime.broker.messages import Consumer, Delivery

_GET_OK = 0x003C0047


class Getter(Wire):
    """An open channel that fetches. Made by ``Session.getter``. It has no consumer beside its fetches, and one fetch at a time."""

    def __init__(self, link: Link, number: int, frame_max: int) -> None:
        super().__init__(link, number, frame_max)
        self._no_ack = False
        self.left = 0  #: How many messages stood in the queue after the last fetch, as the broker knew them then.

    async def get(self, queue: str) -> Delivery | None:
        """The next message of a queue, or ``None`` if it has none that is ready. Raises as ``Wire.consume`` does.

        Of a caller that is cut short nobody knows whether a message is on its way: close the channel then.
        """
        self._consumers[b""] = Consumer(self, "", queue, self._got, no_ack=False)
        answer: Any = await self.call(commands.Basic.Get(queue=queue, no_ack=False), f"from {queue!r}")
        if isinstance(answer, Delivery):
            return answer
        self.left = 0
        return None

    def _after_refusal(self, words: str) -> None:
        """A queue that is not there costs the channel alone: what was fetched over it went back."""

    def _other_method(self, method: int, data: bytes, start: int, stop: int) -> None:
        if method == _GET_OK:
            self._method, self.left = decoding.got(data, start + 4)
            self._delivering = True
        else:
            super()._other_method(method, data, start, stop)

    def _got(self, delivery: Delivery) -> None:
        _, answer = self._calls.popleft()
        if not answer.done():
            whole: asyncio.Future[Any] = answer
            whole.set_result(delivery)
