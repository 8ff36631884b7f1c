"""A session: the life of one connection to the broker, from the login to its end.

A session that is over is over. Nothing here connects again, declares again or sends again: whoever holds a session learns of its end,
with a reason, and climbs the stages anew. Every call that waits on it gets SessionLost, never a bare cancellation. Whatever ends it (the
broker, the wire, silence, a channel error, ``close``, ``abort``) leaves no task and no descriptor.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pamqp import commands
from pamqp.base import Frame

from mesh_runtime.broker.calls import Channel
from mesh_runtime.broker.channel import Wire
from mesh_runtime.broker.confirms import ConfirmedChannel
from mesh_runtime.broker.faults import SessionLost
from mesh_runtime.broker.getting import Getter
from mesh_runtime.broker.link import Link
from mesh_runtime.broker.login import TIDY, PlainConnection
from mesh_runtime.broker.topology import ThrowAway, Topology
from mesh_runtime.broker.watchdog import Watchdog

C = TypeVar("C", bound=Channel)


class Session:
    """One open connection. Made by ``open_session``; ``close`` or ``abort`` it, also after its loss."""

    def __init__(self, link: Link, connection: PlainConnection, identity: str, session_id: str) -> None:
        self.identity = identity
        self.id = session_id
        """32 random hex digits; part of the names of its queues."""
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Gets the reason when the session is over. Never raises. Watch it by ``asyncio.wait`` or a callback, or await ``ended()``:
        a bare ``await session.lost`` that is cancelled would cancel it for everybody."""
        self.on_blocked: Callable[[str], None] = lambda _: None
        """Called when the broker stops reading publishes, with its reason, and with an empty text when it goes on."""
        self._link = link
        self._connection = connection
        self._burial: asyncio.Task[None] | None = None
        self._frame_max = connection.connection_tune.frame_max or 131_072
        self._channel_max = connection.connection_tune.channel_max or 65_535
        self._watchdog = Watchdog(link, float(connection.heartbeat_timeout))
        self._topology = Topology(lambda: self._open(ThrowAway(link, self._number(), self._frame_max)))
        link.on_over = self._over
        link.on_blocked = lambda reason: self.on_blocked(reason)
        connection.on_reader_over = lambda: link.abort(f"the client stopped reading from {link.address}")
        if link.over:
            self._over(link.over)

    # ------------------------------------------------------------------------------------------------------------ state

    @property
    def closed(self) -> bool:
        """Whether it is over, for whatever reason."""
        return bool(self._link.over)

    @property
    def address(self) -> str:
        """Where the broker was reached."""
        return self._link.address

    @property
    def blocked(self) -> str:
        """Why the broker reads nothing that is published here (a memory or disk alarm); empty if it reads."""
        return self._link.blocked

    @property
    def backlog(self) -> int:
        """Bytes put out and not yet taken by the kernel. Nothing here bounds them: senders do."""
        return self._link.backlog

    async def ended(self) -> str:
        """Wait for the end; the reason. Can be cancelled without harm."""
        await asyncio.wait({self.lost})
        return self._link.over

    # --------------------------------------------------------------------------------------------------------- channels

    async def wire(self) -> Wire:
        """A new data channel without confirmations. Raises StageFault (topology) or SessionLost."""
        wire = Wire(self._link, self._number(), self._frame_max, answers_cancel=self._connection.accept_consumer_cancel_ok)
        return await self._open(wire)

    async def getter(self) -> Getter:
        """A new data channel that fetches. Raises StageFault (topology) or SessionLost."""
        return await self._open(Getter(self._link, self._number(), self._frame_max))

    async def confirmed(self) -> ConfirmedChannel:
        """A new data channel with confirmations. Raises StageFault (topology) or SessionLost."""
        return await self._open(ConfirmedChannel(self._link, self._number(), self._frame_max), commands.Confirm.Select())

    def _number(self) -> int:
        if self._link.over:
            raise SessionLost(self._link.over)
        for number in range(1, self._channel_max + 1):
            if number not in self._link.channels:
                return number
        raise SessionLost(f"all {self._channel_max} channels of the session are in use")

    async def _open(self, channel: C, *more: Frame) -> C:
        try:
            for request in (commands.Channel.Open(), *more):
                await channel.call(request)
        except BaseException:  # also a cancellation: nobody has the channel yet
            channel.forget()
            raise
        return channel

    # --------------------------------------------------------------------------------------------------------- topology

    async def declare_queue(self, name: str, *, exclusive: bool = False, quorum: bool = False) -> None:
        """See ``Topology.declare_queue``, as for the next four."""
        await self._topology.declare_queue(name, exclusive=exclusive, quorum=quorum)

    async def delete_queue(self, name: str) -> None:
        """Delete a queue, with what is in it."""
        await self._topology.delete_queue(name)

    async def bind(self, queue: str, exchange: str, key: str) -> None:
        """Route ``exchange``'s messages under ``key`` to a queue."""
        await self._topology.bind(queue, exchange, key)

    async def unbind(self, queue: str, exchange: str, key: str) -> None:
        """Route them there no more."""
        await self._topology.unbind(queue, exchange, key)

    async def consumer_count(self, queue: str) -> int:
        """How many consumers the broker counts on a queue."""
        return await self._topology.consumer_count(queue)

    # ----------------------------------------------------------------------------------------------------------- ending

    async def close(self, timeout: float = 0.3) -> None:
        """End it politely, within ``timeout`` seconds; then by force. Returns with no task and no socket left.

        What was published in this turn of the loop still leaves; what waits for the broker's answer does not get one.
        """
        self._link.finish("the session was closed here")
        if self._burial is None:  # never so: whatever ends the link has begun it
            return
        try:
            await asyncio.wait({self._burial}, timeout=timeout)
        finally:
            self._link.abort("the session was closed here")
        await asyncio.wait({self._burial})

    def abort(self, reason: str = "the session was aborted here") -> None:
        """End it now: sockets are closed without a word, and whoever waits gets SessionLost at once."""
        self._link.abort(reason)

    def _over(self, reason: str) -> None:
        self._watchdog.stop()
        self._connection.on_reader_over = None
        for channel in list(self._link.channels.values()):
            channel.session_over(reason)
        if not self.lost.done():
            self.lost.set_result(reason)
        self._burial = asyncio.get_running_loop().create_task(self._bury(reason), name="session's end")

    async def _bury(self, reason: str) -> None:
        """Put aiormq's part away; it is the last thing that lives of a session, and it is bounded."""
        await self._connection.put_away(reason)
        await self._link.gone(TIDY)
