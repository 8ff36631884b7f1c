"""One AMQP channel: its number, its calls and their answers, and its end.

A call is a request frame and the one frame that answers it; the broker answers in order, so calls need no ids. Content (deliveries,
returns) is what the kinds of channel built on this one are about. Nothing goes on over a channel that the broker closed: what was lost
with it is not known, so its session ends too, unless the kind of channel says otherwise (``topology``).
"""

import asyncio
import struct
from collections import deque
from typing import Any

import pamqp.frame
from pamqp import commands
from pamqp.base import Frame

from mesh_runtime.broker.encoding import METHOD
from mesh_runtime.broker.faults import ChannelLost, SessionLost
from mesh_runtime.broker.link import Link
from mesh_runtime.broker.refusals import refusal
from mesh_runtime.startup import PACES, Stage, waiting

METHOD_ID = struct.Struct(">I")
_CLOSE, _CLOSE_OK = 0x00140028, 0x00140029


class Channel:
    """An open channel, or one that is over. Made by ``Session``."""

    def __init__(self, link: Link, number: int, frame_max: int) -> None:
        self.number = number
        self.over: SessionLost | None = None  #: What a call raises from now on (a copy of it).
        self._link = link
        self._frame_max = frame_max
        self._calls: deque[tuple[str, asyncio.Future[Frame]]] = deque()
        self._closed: asyncio.Future[None] | None = None
        link.channels[number] = self

    async def call(self, request: Frame, about: str = "", limit: float | None = None) -> Any:
        """The broker's answer to ``request``, which is about ``about`` (words for a fault).

        Raises StageFault (topology) for a refusal or no answer within ``limit`` seconds, SessionLost if the session ends.
        """
        if self.over is not None:
            raise self.over.again()
        what = f"{request.name} {about}".strip()
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._calls.append((what, answer))
        self.send(request)
        limit = PACES[Stage.TOPOLOGY].deadline if limit is None else limit
        try:
            async with asyncio.timeout(limit):
                return await answer
        except TimeoutError:
            alarm = f" (it reads nothing from publishers: {self._link.blocked})" if self._link.blocked else ""
            words = f"{self._link.address} did not answer {what} within {limit:g} s{alarm}"
            raise waiting(Stage.TOPOLOGY, "silent", words, self._link.address) from None

    def send(self, frame: Frame) -> None:
        """Send a frame that has no answer."""
        self._link.send(pamqp.frame.marshal(frame, self.number))

    def forget(self) -> None:
        """Close it without waiting: its number is free once the broker has said so."""
        if self.over is None:
            self.send(commands.Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0))
            self._end(ChannelLost("the channel was closed here"))

    async def close(self, limit: float = 1.0) -> None:
        """Close it here. What is still pending on it raises ChannelLost. Never raises itself."""
        if self.over is not None:
            return
        self._closed = asyncio.get_running_loop().create_future()
        self.forget()
        # Not confirmed in time: the number stays taken until the broker says so or the session ends.
        await asyncio.wait({self._closed}, timeout=limit)

    def session_over(self, reason: str) -> None:
        """The session has ended: nothing is left to wait for."""
        self._end(SessionLost(reason))
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def frame(self, kind: int, data: bytes, start: int, stop: int) -> None:
        """Take a frame from the link. Kinds of channel override this and pass on what is not theirs."""
        if kind != METHOD:
            return
        (method,) = METHOD_ID.unpack_from(data, start)
        _, _, frame = pamqp.frame.unmarshal(data[start - 7 : stop + 1])
        if method == _CLOSE_OK:
            self._link.channels.pop(self.number, None)
            if self._closed is not None and not self._closed.done():
                self._closed.set_result(None)
        elif method == _CLOSE and isinstance(frame, commands.Channel.Close):
            self.send(commands.Channel.CloseOk())
            if self.over is None:  # else both have closed it at once: the number is free once ours is answered too
                self._link.channels.pop(self.number, None)
                self._refused(frame.reply_code or 0, frame.reply_text or "")
        elif self._calls and isinstance(frame, Frame):
            _, answer = self._calls.popleft()
            if not answer.done():
                answer.set_result(frame)

    def _refused(self, code: int, text: str) -> None:
        """The broker closed this channel."""
        words = f"the broker closed a channel: {code} {text}"
        calls, self._calls = self._calls, deque()
        for what, answer in calls:
            if not answer.done():
                answer.set_exception(refusal(code, text, what))
        self._end(SessionLost(words))
        self._after_refusal(words)

    def _after_refusal(self, words: str) -> None:
        self._link.abort(words)

    def _end(self, why: SessionLost) -> None:
        if self.over is not None:
            return
        self.over = why
        calls, self._calls = self._calls, deque()
        for _, answer in calls:
            if not answer.done():
                answer.set_exception(why.again())
        self._ended(why)

    def _ended(self, why: SessionLost) -> None:
        """Whatever a kind of channel has to do at its end."""
