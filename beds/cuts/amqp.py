"""A gate between a runtime and the broker that sees each message and its settlement: published, confirmed, delivered, acknowledged.

It ends TLS itself, with the broker's own certificate. All else that AMQP says (declaring, binding, heartbeats) passes unseen. Source: AMQP
0-9-1 section 4.2 *AMQP Wire-level Format*.
"""

import ssl
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass, field

from pamqp import base, commands, frame, header

from beds.cuts.steps import BROKER, Watch
from mesh_runtime.testing.gate import Connection, Gate

HEADER, END = 7, 1
_METHOD, _CONTENT = 1, (2, 3)
_CARRY = (commands.Basic.Publish, commands.Basic.Deliver, commands.Basic.Return, commands.Basic.GetOk)


@dataclass
class Channel:
    """What was published and delivered over one channel: the type of each message by its number, until it is settled."""

    numbered: int | None = None
    """How many were published since the channel confirms."""
    published: dict[int, str] = field(default_factory=dict)
    delivered: dict[int, str] = field(default_factory=dict)


@dataclass
class Direction:
    """One direction of a connection: what has come and is no whole frame yet, and the message that is not whole yet, by channel."""

    rest: bytes = b""
    begun: dict[int, "Message"] = field(default_factory=dict)


@dataclass
class Message:
    """A message on its way: the frames of it that have come."""

    method: base.Frame
    frames: bytes
    type: str = ""
    size: int = 0
    come: int = 0


class AmqpGate(Gate):
    """Stands between ``client`` and the broker. Messages of the types ``unseen``, and what settles them, are no steps."""

    def __init__(self, target: int, tls: ssl.SSLContext, client: str, watch: Watch, unseen: Collection[str]) -> None:
        super().__init__(target, tls=tls)
        self._ends = (client, BROKER)
        self._watch = watch
        self._unseen = unseen
        self._channels: dict[tuple[Connection, int], Channel] = {}
        self._directions: dict[tuple[Connection, bool], Direction] = {}
        self._dead: set[Connection] = set()

    async def parts(self, connection: Connection, upward: bool, data: bytes) -> AsyncIterator[bytes]:
        """Frame by frame, a message whole."""
        direction = self._directions.setdefault((connection, upward), Direction())
        direction.rest += data
        for whole, name in self._units(connection, direction):
            if name and not await self._watch.passes(self._ends, name):
                self._dead.add(connection)
            if connection in self._dead:
                return
            yield whole

    def _units(self, connection: Connection, direction: Direction) -> Iterator[tuple[bytes, str]]:
        """What can be forwarded by now, and the name of the step that it is, if it is one."""
        while frame_ := _next(direction):
            number = int.from_bytes(frame_[1:3], "big")
            if frame_[:4] == b"AMQP" or frame_[0] not in (_METHOD, *_CONTENT):
                yield frame_, ""
            elif frame_[0] == _METHOD:
                method = frame.unmarshal(frame_)[2]
                if isinstance(method, _CARRY):
                    direction.begun[number] = Message(method, frame_)
                else:
                    yield frame_, self._settled(self._channel(connection, number), method)
            elif (message := _grown(direction.begun[number], frame_)).come >= message.size:
                del direction.begun[number]
                yield message.frames, self._carried(self._channel(connection, number), message)

    def _channel(self, connection: Connection, number: int) -> Channel:
        return self._channels.setdefault((connection, number), Channel())

    def _carried(self, channel: Channel, message: Message) -> str:
        method = message.method
        if isinstance(method, commands.Basic.Publish):
            if channel.numbered is not None:
                channel.numbered += 1
                channel.published[channel.numbered] = message.type
            return self._step("publish", message.type)
        if isinstance(method, commands.Basic.Return):
            return self._step("return", message.type)
        if isinstance(method, commands.Basic.Deliver | commands.Basic.GetOk) and method.delivery_tag is not None:
            channel.delivered[method.delivery_tag] = message.type
        return self._step("deliver", message.type)

    def _settled(self, channel: Channel, method: object) -> str:
        """The broker's confirmation of what was published, or the client's settlement of what was delivered."""
        match method:
            case commands.Confirm.SelectOk():
                channel.numbered = 0
            case commands.Basic.Ack(delivery_tag=int(tag), multiple=many) | commands.Basic.Nack(delivery_tag=int(tag), multiple=many):
                # The two directions number apart; no channel of a runtime both consumes and publishes with confirms.
                book, verb = (channel.published, "confirm") if channel.numbered is not None else (channel.delivered, "ack")
                kind = book.pop(tag, "?")
                for older in [one for one in book if many and one < tag]:
                    del book[older]
                return self._step(verb if isinstance(method, commands.Basic.Ack) else f"{verb} (negative)", kind)
            case commands.Basic.Reject(delivery_tag=int(tag)):
                return self._step("reject", channel.delivered.pop(tag, "?"))
        return ""

    def _step(self, verb: str, kind: str) -> str:
        return "" if kind in self._unseen else f"{verb} {kind}"


def _next(direction: Direction) -> bytes:
    """The next whole frame, taken from what has come; nothing if there is none."""
    rest = direction.rest
    if rest[:4] == b"AMQP":
        size = 8
    elif len(rest) < HEADER:
        return b""
    else:
        size = HEADER + int.from_bytes(rest[3:7], "big") + END
    if len(rest) < size:
        return b""
    direction.rest = rest[size:]
    return rest[:size]


def _grown(message: Message, frame_: bytes) -> Message:
    message.frames += frame_
    content = frame.unmarshal(frame_)[2]
    if isinstance(content, header.ContentHeader):
        message.size = content.body_size
        message.type = content.properties.message_type or "?"
    else:
        message.come += len(frame_) - HEADER - END
    return message
