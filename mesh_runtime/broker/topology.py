"""Declares, binds and counts: each on a throw-away channel, since the broker closes a channel for every refusal.

One channel serves all calls while it lives; after a refusal the next call opens another. Calls go one at a time, so that a refusal
belongs to the call that caused it. Queues are declared with their type and nothing that could ever change (406 for ever after an
upgrade): lengths and limits are policies.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pamqp import commands
from pamqp.base import Frame

from mesh_runtime.broker.calls import Channel
from mesh_runtime.startup import PACES, Stage


class ThrowAway(Channel):
    """A channel whose refusal costs nothing but itself."""

    def _after_refusal(self, words: str) -> None:
        """The next call opens another channel."""


class Topology:
    """The broker's queues and bindings as one session may change them.

    Everything raises StageFault (topology): blocked ``no-permission`` (403) and ``foreign-queue`` (406), waiting ``no-exchange`` and
    ``no-queue`` (404), ``locked`` (405: another connection's), ``silent``; or SessionLost.
    """

    def __init__(self, open_channel: Callable[[], Awaitable[ThrowAway]]) -> None:
        self._open = open_channel
        self._channel: ThrowAway | None = None
        self._turn = asyncio.Lock()

    async def ask(self, request: Frame, about: str) -> Any:
        """The broker's answer to a request that may be refused."""
        async with self._turn:
            if self._channel is None or self._channel.over is not None:
                self._channel = await self._open()
            channel = self._channel
            try:
                return await channel.call(request, about, PACES[Stage.TOPOLOGY].deadline)
            except BaseException:  # also a cancellation: a late refusal of what was given up must not be taken for one of the next call
                if channel.over is None:
                    self._channel = None
                    channel.forget()
                raise

    async def declare_queue(self, name: str, *, exclusive: bool = False, quorum: bool = False) -> None:
        """Make a queue, or find it with the same type: exclusive (gone with the session), quorum, or plain durable."""
        kind = "quorum" if quorum else "classic"
        request = commands.Queue.Declare(queue=name, durable=not exclusive, exclusive=exclusive, arguments={"x-queue-type": kind})
        await self.ask(request, repr(name))

    async def delete_queue(self, name: str) -> None:
        """Delete a queue, with what is in it. One that is not there is deleted already."""
        await self.ask(commands.Queue.Delete(queue=name), repr(name))

    async def bind(self, queue: str, exchange: str, key: str) -> None:
        """Route messages to ``exchange`` under ``key`` to a queue."""
        await self.ask(commands.Queue.Bind(queue=queue, exchange=exchange, routing_key=key), f"{queue!r} to {exchange!r} by {key!r}")

    async def unbind(self, queue: str, exchange: str, key: str) -> None:
        """Route them there no more."""
        await self.ask(commands.Queue.Unbind(queue=queue, exchange=exchange, routing_key=key), f"{queue!r} from {exchange!r} by {key!r}")

    async def consumer_count(self, queue: str) -> int:
        """How many consumers the broker itself counts on a queue (a passive declare).

        A quorum queue counts one that was cancelled as long as it holds an unsettled delivery.
        """
        answer = await self.ask(commands.Queue.Declare(queue=queue, passive=True), f"{queue!r} (passive)")
        return int(answer.consumer_count or 0)
