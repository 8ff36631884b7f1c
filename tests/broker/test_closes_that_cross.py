"""Two closes of one channel that cross: its number is taken again only when the broker has answered ours.

Else that answer would be taken for one to the next channel of that number, which then waits for its opening in vain.
"""

import asyncio
from functools import partial

import pamqp.frame
from pamqp import commands
from pamqp.base import Frame

from mesh_runtime.broker import Session
from mesh_runtime.broker.calls import Channel
from mesh_runtime.testing.waiting import until
from tests.broker.conftest import begun


class Written:
    """A link that only notes what is sent."""

    def __init__(self) -> None:
        self.channels: dict[int, Channel] = {}
        self.sent: list[str] = []

    def send(self, frame: bytes) -> None:
        _, _, method = pamqp.frame.unmarshal(frame)
        assert isinstance(method, Frame)
        self.sent.append(method.name)

    def abort(self, reason: str) -> None:
        raise AssertionError(reason)

    def receive(self, method: Frame) -> None:
        data = pamqp.frame.marshal(method, 1)
        if 1 in self.channels:
            self.channels[1].frame(1, data, 7, len(data) - 1)


async def test_the_number_is_free_once_our_own_close_is_answered() -> None:
    link = Written()
    channel = Channel(link, 1, 131_072)  # type: ignore[arg-type]  # only these are used
    channel.forget()
    link.receive(commands.Channel.Close(404, "NOT_FOUND", 50, 10))
    assert 1 in link.channels, "the broker's answer to our close is still to come"
    link.receive(commands.Channel.CloseOk())
    assert link.sent == ["Channel.Close", "Channel.CloseOk"]
    assert not link.channels


async def test_the_broker_answers_our_close_although_it_has_closed_the_channel_itself(session: Session) -> None:
    for _ in range(20):
        refused = asyncio.ensure_future(session.consumer_count("no-such-queue"))
        await until(partial(begun, session, refused), every=0)
        refused.cancel()
        await asyncio.gather(refused, return_exceptions=True)
        await session.declare_queue("q", exclusive=True)
    await until(lambda: len(session._link.channels) == 1)
    assert not session.closed
