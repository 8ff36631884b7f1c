"""Settles deliveries in as few frames as is safe: one acknowledgement a turn of the loop for the whole finished prefix.

``basic.ack`` with *multiple* settles every delivery of the channel up to its tag, finished or not. So only a prefix of which every
delivery is finished is acknowledged that way, and a channel that acknowledges has one consumer. A slow handler holds the prefix back;
after 100 ms what is finished beyond it is acknowledged one by one, so that it is neither delivered again after a cut nor fills the
prefetch window. RabbitMQ closes the channel for a tag that is settled twice (406): that is refused here, before it is sent.
"""

import asyncio

from mesh_runtime.broker import encoding
from mesh_runtime.broker.link import Link

#: Seconds that finished deliveries may wait for an unfinished one before them.
STUCK = 0.1


class Settling:
    """What is settled of one channel's deliveries. Tags count from 1, without a gap."""

    def __init__(self, link: Link, channel: int) -> None:
        self._link = link
        self._channel = channel
        self.delivered = 0  #: The highest tag that came.
        self._low = 0  # every tag up to here is settled at the broker
        self._finished: set[int] = set()  # acknowledged by the caller, not yet at the broker
        self._single: set[int] = set()  # settled at the broker, above low
        self._due = False
        self._timer: asyncio.TimerHandle | None = None

    def ack(self, tag: int) -> None:
        """This delivery is done."""
        self._check(tag)
        self._finished.add(tag)
        if not self._due:
            self._due = True
            self._link.before_flush(self._flush)

    def nack(self, tag: int, requeue: bool) -> None:
        """This delivery goes back to its queue, or is dropped (or dead-lettered, where the queue says so)."""
        self._check(tag)
        self._single.add(tag)
        self._link.send(encoding.nack(self._channel, tag, requeue))
        if not self._due:
            self._due = True
            self._link.before_flush(self._flush)

    def flush(self) -> None:
        """Send now all that is finished, also behind what is not: the channel is about to close."""
        if self._due:
            self._flush()
        self.stop()
        self._unstick()

    def stop(self) -> None:
        """The channel is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, tag: int) -> None:
        if tag <= self._low or tag in self._finished or tag in self._single:
            raise ValueError(f"delivery {tag} is settled already")
        if tag > self.delivered:
            raise ValueError(f"there is no delivery {tag} on this channel, the last is {self.delivered}")

    def _flush(self) -> None:
        self._due = False
        low, top = self._low, 0
        while True:
            if low + 1 in self._finished:
                low += 1
                top = low
                self._finished.discard(low)
            elif low + 1 in self._single:
                low += 1
                self._single.discard(low)
            else:
                break
        self._low = low
        if top:  # a tag that was settled singly is unknown to the broker by now and must not end a multiple
            self._link.send(encoding.ack(self._channel, top, multiple=True))
        if self._finished and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(STUCK, self._unstick)

    def _unstick(self) -> None:
        self._timer = None
        for tag in sorted(self._finished):
            self._link.send(encoding.ack(self._channel, tag, multiple=False))
        self._single |= self._finished
        self._finished.clear()
