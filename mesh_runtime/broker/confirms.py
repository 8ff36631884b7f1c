"""The data channel with confirmations: ``publish`` returns once the broker has the message in every queue it was routed to.

Three outcomes and no fourth: confirmed; certainly not sent (returned, refused, or never written); unknown. The broker numbers publishes
by their order and confirms one or a whole prefix; a message that nobody is bound to comes back *before* its confirmation, known by its
message id alone. Source: RabbitMQ guide *Publishers*.
"""

import asyncio
from collections import Counter

from mesh_runtime.broker import decoding
from mesh_runtime.broker.content import ContentChannel
from mesh_runtime.broker.decoding import Head
from mesh_runtime.broker.faults import NotRouted, OutcomeUnknown, PublishRefused, SessionLost
from mesh_runtime.broker.link import Link
from mesh_runtime.broker.messages import Properties
from mesh_runtime.broker.publishing import Publisher

_ACK, _NACK = 0x003C0050, 0x003C0078


class ConfirmedChannel(ContentChannel):
    """An open channel with confirmations. Made by ``Session.confirmed``."""

    def __init__(self, link: Link, number: int, frame_max: int) -> None:
        super().__init__(link, number, frame_max)
        self._publisher = Publisher(number, frame_max)
        self._published = 0
        self._pending: dict[int, tuple[asyncio.Future[None], str]] = {}  # by number, in order
        self._returned: Counter[str] = Counter()

    async def publish(self, exchange: str, key: str, body: bytes, props: Properties, *, timeout: float, as_received: bool = False) -> None:
        """Return once the message is confirmed and routed.

        Raises TooLarge or SessionLost before anything is written, NotRouted, PublishRefused (all: not sent), or OutcomeUnknown after
        ``timeout`` seconds or if the session is lost meanwhile. ``as_received`` passes on what came
        from elsewhere, whatever its size. A caller that is cancelled leaves the outcome unknown, and nothing else.
        """
        if self.over is not None:
            raise self.over.again()
        if not props.message_id:
            raise ValueError("a confirmed message needs a message_id: a returned one is known by nothing else")
        frames = self._publisher.frames(exchange, key, body, props, mandatory=True, bounded=not as_received)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[None] = loop.create_future()
        self._published += 1
        self._pending[self._published] = outcome, props.message_id
        self._link.send(frames)
        timer = loop.call_later(timeout, self._late, outcome, timeout)
        try:
            await outcome
        except NotRouted:
            raise NotRouted(f"no queue is bound to {key!r} on {exchange!r}") from None
        finally:
            timer.cancel()

    @property
    def unconfirmed(self) -> int:
        """Messages whose confirmation is still awaited from the broker, those given up by their senders among them."""
        return len(self._pending)

    def _late(self, outcome: asyncio.Future[None], timeout: float) -> None:
        if not outcome.done():
            alarm = f"; the broker reads nothing from publishers: {self._link.blocked}" if self._link.blocked else ""
            outcome.set_exception(OutcomeUnknown(f"no confirmation within {timeout:g} s{alarm}"))

    def _other_method(self, method: int, data: bytes, start: int, stop: int) -> None:
        if method not in (_ACK, _NACK):
            super()._other_method(method, data, start, stop)
            return
        number, multiple = decoding.tag_and_flag(data, start + 4)
        if multiple & 1:
            while self._pending and (first := next(iter(self._pending))) <= number:
                self._settle(first, confirmed=method == _ACK)
        else:
            self._settle(number, confirmed=method == _ACK)

    def _settle(self, number: int, *, confirmed: bool) -> None:
        outcome, message_id = self._pending.pop(number, (None, ""))
        came_back = self._returned[message_id] > 0 if self._returned else False
        if came_back:
            self._returned[message_id] -= 1
            if not self._returned[message_id]:
                del self._returned[message_id]
        if outcome is None or outcome.done():
            return
        if not confirmed:
            outcome.set_exception(PublishRefused("the broker refused the message (basic.nack): is its queue full?"))
        elif came_back:
            outcome.set_exception(NotRouted)
        else:
            outcome.set_result(None)

    def _came_back(self, method: tuple[int, str, str, str], head: Head) -> None:
        self._returned[head.message_id] += 1

    def _ended(self, why: SessionLost) -> None:
        pending, self._pending = self._pending, {}
        for outcome, _ in pending.values():
            if not outcome.done():
                outcome.set_exception(OutcomeUnknown(f"the session was lost before the confirmation: {why}"))
