"""The byte stream to the broker: hears everything first, hands each frame on at once, writes once a turn of the loop.

aiormq keeps the connection itself (login, heartbeats, the polite close): it reads from ``reader``, which gets the frames of channel 0
alone. Frames of other channels go straight to the channel's ``frame`` method, in the call in which their bytes came: no task, no queue,
no object for each frame. That is what makes an ask several times cheaper than by the client's own layers (``docs/design``, *mechanisms*
S1).

It promises that its end is told once, with a reason that is never empty, and that nothing is written afterwards. A channel's callback
must not raise: what it raises ends the link, loudly, since asyncio treats it as a broken connection.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Final, Protocol

import pamqp.exceptions
import pamqp.frame
from pamqp import commands

from mesh_runtime.broker.encoding import BODY, END, HEADER, HEARTBEAT, METHOD

_FRAME = struct.Struct(">BHI")
_RESET: Final = struct.pack("ii", 1, 0)  # linger for no time
_KINDS: Final = frozenset((METHOD, HEADER, BODY, HEARTBEAT))
_FRAME_END: Final = END[0]
#: Bytes. Far above the broker's 128 KiB; what claims more is no AMQP.
_LARGEST_FRAME: Final = 4 * 1024 * 1024
_CONNECTION_CLASS: Final = b"\x00\x0a"
_CLOSE, _BLOCKED, _UNBLOCKED = 50, 60, 61
_HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"


class FrameTaker(Protocol):
    """What a channel is to its link."""

    def frame(self, kind: int, data: bytes, start: int, stop: int) -> None:
        """Take one frame: its kind, and where its payload stands in ``data``."""

    def session_over(self, reason: str) -> None:
        """The link is over."""


class Link(asyncio.StreamReaderProtocol):
    """One connection's bytes, from the first after the TLS handshake to its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str) -> None:
        self.reader = asyncio.StreamReader(loop=loop)
        super().__init__(self.reader, loop=loop)
        self.address = address
        self.channels: dict[int, FrameTaker] = {}
        self.heard = loop.time()  #: When the broker last sent a byte.
        self.close_words: tuple[int, str] | None = None  #: Code and text of the broker's own ``connection.close``.
        self.over = ""  #: Why it is over; empty while it lives.
        self.blocked = ""  #: The broker's reason for not reading what is published; empty if it reads.
        self.on_over: Callable[[str], None] | None = None
        self.on_blocked: Callable[[str], None] | None = None
        self.session_stands = False  #: From then on a ``connection.close`` is answered here.
        self._clock = loop
        self._gone: asyncio.Future[None] = loop.create_future()
        self._raw: asyncio.Transport | None = None
        self._tls: asyncio.Transport | None = None
        self._rest = b""
        self._out: list[bytes] = []
        self._before_flush: list[Callable[[], None]] = []
        self._flush_due = False
        self._receiving = False

    # ------------------------------------------------------------------------------------------------------- receiving

    def attach(self, raw: asyncio.Transport, tls: asyncio.Transport) -> asyncio.StreamWriter:
        """Take the transports: TCP's own, which can be aborted at any time, and that of TLS. Returns the writer for aiormq."""
        self._raw, self._tls = raw, tls
        if self.over:
            raw.abort()
        super().connection_made(tls)
        return asyncio.StreamWriter(tls, self, self.reader, self._clock)

    def data_received(self, data: bytes) -> None:
        """Cut the stream into frames and hand each on."""
        self.heard = self._clock.time()
        if self._rest:
            data = self._rest + data
            self._rest = b""
        at, end, channels = 0, len(data), self.channels
        self._receiving = True
        try:
            while end - at >= 8:
                kind, number, size = _FRAME.unpack_from(data, at)
                stop = at + 7 + size
                if kind not in _KINDS or size > _LARGEST_FRAME:
                    return self._malformed(data[at:])
                if stop >= end:
                    break
                if data[stop] != _FRAME_END:
                    return self._malformed(data[at:])
                channel = channels.get(number)
                if channel is not None:
                    channel.frame(kind, data, at + 7, stop)
                elif number == 0:
                    self._connection_frame(kind, data, at, stop)
                at = stop + 1
        finally:
            self._receiving = False
        if at < end:
            self._rest = data[at:] if at else data
        if self._flush_due:
            self._flush()
        return None

    def _malformed(self, data: bytes) -> None:
        what = "it speaks another version of AMQP" if data.startswith(b"AMQP") else "it does not speak AMQP"
        self.abort(f"{self.address} sent {data[:16]!r}: {what}")

    def _connection_frame(self, kind: int, data: bytes, at: int, stop: int) -> None:
        if kind == METHOD and data[at + 7 : at + 9] == _CONNECTION_CLASS:
            method = data[at + 10]
            if method in (_CLOSE, _BLOCKED, _UNBLOCKED) and self._own_frame(data[at : stop + 1]):
                return
        self.reader.feed_data(data[at : stop + 1])

    def _own_frame(self, frame: bytes) -> bool:
        """Deal with a close, blocked or unblocked; returns whether that was all there is to do."""
        try:
            _, _, method = pamqp.frame.unmarshal(frame)
        except pamqp.exceptions.PAMQPException:
            return False
        match method:
            case commands.Connection.Close():
                self.close_words = (method.reply_code or 0, method.reply_text or "")
                if self.session_stands:
                    self.send(pamqp.frame.marshal(commands.Connection.CloseOk(), 0))
                    self._flush()
                    self._end(f"the broker closed the connection: {method.reply_code} {method.reply_text}")
                    if self._tls is not None:
                        self._tls.close()
                return self.session_stands
            case commands.Connection.Blocked():
                self._set_blocked(method.reason or "no reason given")
            case commands.Connection.Unblocked():
                self._set_blocked("")
        return True

    def _set_blocked(self, reason: str) -> None:
        self.blocked = reason
        if self.on_blocked is not None:
            self.on_blocked(reason)

    def feed_heartbeat(self) -> None:
        """Let aiormq see that the broker is alive: it counts silence itself, and sees no frame of our channels."""
        if not self.over:
            self.reader.feed_data(_HEARTBEAT_FRAME)

    # --------------------------------------------------------------------------------------------------------- sending

    def send(self, frames: bytes) -> None:
        """Put whole frames out; all of one turn of the loop leave in one write. Does nothing once the link is over."""
        self._out.append(frames)
        if not self._flush_due:
            self._flush_due = True
            if not self._receiving:
                self._clock.call_soon(self._flush)

    def before_flush(self, hook: Callable[[], None]) -> None:
        """Have ``hook`` called once, right before the next write, so that it can add to it."""
        self._before_flush.append(hook)
        if not self._flush_due:
            self._flush_due = True
            if not self._receiving:
                self._clock.call_soon(self._flush)

    def _flush(self) -> None:
        if self._before_flush:
            hooks, self._before_flush = self._before_flush, []
            for hook in hooks:
                hook()
        self._flush_due = False
        out, self._out = self._out, []
        if not self.over and self._tls is not None and out:
            self._tls.write(out[0] if len(out) == 1 else b"".join(out))

    @property
    def backlog(self) -> int:
        """Bytes that were sent here and that the kernel has not taken yet."""
        if self.over or self._raw is None or self._tls is None:
            return 0
        return self._raw.get_write_buffer_size() + self._tls.get_write_buffer_size() + sum(map(len, self._out))

    # ---------------------------------------------------------------------------------------------------------- ending

    def abort(self, reason: str) -> None:
        """End it now: nothing that was not written yet is, and the socket is gone a turn later.

        By a reset: a plain end leaves the broker with a socket in CLOSE-WAIT for as long as it waits for the rest of a handshake or login.
        """
        self._end(reason)
        if self._raw is not None:
            with contextlib.suppress(OSError):
                self._raw.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._raw.abort()

    def finish(self, reason: str) -> None:
        """It is over for all users, but the connection lives on for aiormq's polite close. What was sent this turn still leaves."""
        if not self.over:
            self._flush()
            self._end(reason)

    async def gone(self, limit: float) -> None:
        """Return once the socket is closed, by force after ``limit`` seconds."""
        await asyncio.wait({self._gone}, timeout=limit)
        if not self._gone.done() and self._raw is not None:
            self._raw.abort()
            await asyncio.wait({self._gone}, timeout=limit)

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio's word that the transport is closed."""
        words = f"{type(exc).__name__}: {exc}" if exc is not None else "the broker closed the connection without a word"
        self._end(f"{words} ({self.address})")
        self.channels.clear()
        super().connection_lost(exc)
        if not self._gone.done():
            self._gone.set_result(None)

    def _end(self, reason: str) -> None:
        if self.over:
            return
        self.over = reason or "no reason given"
        if self.on_over is not None:
            self.on_over(self.over)
