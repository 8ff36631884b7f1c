"""A confirmed publish has three outcomes: confirmed, certainly not sent, unknown. Each is told, in order or not."""

import asyncio

import pamqp.frame
import pytest
from pamqp import commands
from pamqp.header import ContentHeader

from mesh_runtime.broker import (
    BrokerAt,
    Delivery,
    NotRouted,
    OutcomeUnknown,
    Properties,
    PublishRefused,
    Session,
    SessionLost,
    TooLarge,
)
from mesh_runtime.broker.confirms import ConfirmedChannel
from mesh_runtime.broker.encoding import BODY
from mesh_runtime.broker.link import Link
from mesh_runtime.contracts.wire import BODY_LIMIT
from mesh_runtime.testing.gate import Gate, Mode
from mesh_runtime.testing.management import Management
from mesh_runtime.testing.waiting import until
from tests.broker.conftest import Opener


def numbered(number: int) -> Properties:
    return Properties("test.1", f"m-{number}", persistent=True)


class TestAtTheBroker:
    async def test_a_thousand_at_once_are_confirmed_and_all_there(self, session: Session) -> None:
        await session.declare_queue("q", quorum=True)
        channel, wire = await session.confirmed(), await session.wire()
        await asyncio.gather(*(channel.publish("", "q", str(n).encode(), numbered(n), timeout=20) for n in range(1000)))
        assert channel.unconfirmed == 0
        got: list[Delivery] = []
        await wire.consume("q", got.append, no_ack=True)
        await until(lambda: len(got) == 1000)
        assert [each.body for each in got] == [str(n).encode() for n in range(1000)]

    async def test_what_no_queue_is_bound_to_is_not_sent_and_the_rest_is(self, session: Session) -> None:
        await session.declare_queue("q", quorum=True)
        channel = await session.confirmed()
        keys = ["q", "nobody"] * 50
        ends = await asyncio.gather(
            *(channel.publish("", key, b"{}", numbered(n), timeout=20) for n, key in enumerate(keys)), return_exceptions=True
        )
        assert [type(end) for end in ends] == [type(None), NotRouted] * 50
        assert "nobody" in str(ends[1])

    async def test_a_full_queue_refuses(self, session: Session, management: Management, vhost: str) -> None:
        policy = {"pattern": "^full$", "definition": {"max-length": 1, "overflow": "reject-publish"}, "apply-to": "queues"}
        await management.put_policy(vhost, "full", policy)
        await session.declare_queue("full")
        channel = await session.confirmed()

        async def is_refused() -> bool:
            try:
                await channel.publish("", "full", b"{}", numbered(0), timeout=5)
            except PublishRefused:
                return True
            return False

        await until(is_refused)
        assert not session.closed

    async def test_what_is_too_large_is_not_sent_and_takes_no_number(self, session: Session) -> None:
        await session.declare_queue("q", quorum=True)
        channel = await session.confirmed()
        with pytest.raises(TooLarge):
            await channel.publish("", "q", b"x" * (BODY_LIMIT + 1), numbered(1), timeout=5)
        await channel.publish("", "q", b"x", numbered(2), timeout=5)

    async def test_a_message_without_an_id_is_refused_here(self, session: Session) -> None:
        channel = await session.confirmed()
        with pytest.raises(ValueError, match="message_id"):
            await channel.publish("", "q", b"", Properties("test.1", ""), timeout=5)

    async def test_a_frozen_link_is_unknown_at_the_deadline(self, at: BrokerAt, opened: Opener) -> None:
        async with Gate(at.addresses[0][1]) as gate:
            session = await opened(addresses=(("127.0.0.1", gate.port),))
            channel = await session.confirmed()
            await gate.become(Mode.FREEZE)
            with pytest.raises(OutcomeUnknown, match=r"0\.2 s"):
                await channel.publish("", "q", b"", numbered(1), timeout=0.2)
            assert channel.unconfirmed == 1
            gate.cut()
            await session.ended()
            with pytest.raises(SessionLost):
                await channel.publish("", "q", b"", numbered(2), timeout=0.2)

    async def test_a_caller_that_is_cancelled_takes_nobody_elses_outcome(self, session: Session) -> None:
        await session.declare_queue("q", quorum=True)
        channel = await session.confirmed()
        calls = [asyncio.ensure_future(channel.publish("", "q", b"", numbered(n), timeout=20)) for n in range(20)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        await asyncio.wait(calls)
        assert [call.cancelled() for call in calls] == [True, False] * 10
        assert [call.exception() for call in calls[1::2]] == [None] * 10
        await until(lambda: channel.unconfirmed == 0)


class Scripted:
    """A confirmed channel whose broker is this test: frames are given by hand."""

    def __init__(self) -> None:
        self.link = Link(asyncio.get_running_loop(), "test")
        self.channel = ConfirmedChannel(self.link, 1, 131_072)

    def publish(self, number: int, timeout: float = 10) -> asyncio.Future[None]:
        return asyncio.ensure_future(self.channel.publish("x", "k", b"{}", numbered(number), timeout=timeout))

    def gives(self, *frames: object) -> None:
        self.link.data_received(b"".join(pamqp.frame.marshal(frame, 1) for frame in frames))  # type: ignore[arg-type]

    def returns(self, number: int) -> tuple[object, object]:
        header = ContentHeader(0, 0, commands.Basic.Properties(message_id=f"m-{number}"))
        return commands.Basic.Return(312, "NO_ROUTE", "x", "k"), header


class TestByHand:
    async def test_multiple_settles_the_whole_prefix_and_nothing_beyond(self) -> None:
        broker = Scripted()
        calls = [broker.publish(n) for n in range(5)]
        await asyncio.sleep(0)
        broker.gives(commands.Basic.Ack(3, multiple=True))
        await asyncio.wait(calls[:3])
        assert [call.done() for call in calls] == [True] * 3 + [False] * 2
        broker.gives(commands.Basic.Nack(5, multiple=True))
        await asyncio.wait(calls)
        assert [type(call.exception()) for call in calls[3:]] == [PublishRefused] * 2

    async def test_confirmations_may_come_in_any_order(self) -> None:
        broker = Scripted()
        calls = [broker.publish(n) for n in range(3)]
        await asyncio.sleep(0)
        broker.gives(commands.Basic.Ack(3), commands.Basic.Ack(1))
        await asyncio.wait([calls[0], calls[2]])
        assert not calls[1].done()
        broker.gives(commands.Basic.Ack(3, multiple=True))
        await asyncio.wait(calls)
        assert [call.exception() for call in calls] == [None] * 3

    async def test_a_return_before_its_confirmation_in_a_prefix_is_not_sent(self) -> None:
        broker = Scripted()
        calls = [broker.publish(n) for n in range(3)]
        await asyncio.sleep(0)
        broker.gives(*broker.returns(1), commands.Basic.Ack(3, multiple=True))
        await asyncio.wait(calls)
        assert [type(call.exception()) for call in calls] == [type(None), NotRouted, type(None)]

    async def test_a_return_is_forgotten_with_its_confirmation(self) -> None:
        broker = Scripted()
        first = broker.publish(1)
        await asyncio.sleep(0)
        broker.gives(*broker.returns(1), commands.Basic.Ack(1))
        with pytest.raises(NotRouted):
            await first
        again = broker.publish(1)
        await asyncio.sleep(0)
        broker.gives(commands.Basic.Ack(2))
        await again
        assert not broker.channel._returned

    async def test_a_confirmation_after_the_deadline_is_dropped(self) -> None:
        broker = Scripted()
        with pytest.raises(OutcomeUnknown):
            await broker.publish(1, timeout=0.01)
        broker.gives(commands.Basic.Ack(1))
        assert broker.channel.unconfirmed == 0

    async def test_the_end_of_the_session_makes_all_that_was_written_unknown(self) -> None:
        broker = Scripted()
        calls = [broker.publish(n) for n in range(3)]
        await asyncio.sleep(0)
        broker.gives(commands.Basic.Ack(1))
        broker.channel.session_over("cut")
        await asyncio.wait(calls)
        assert [type(call.exception()) for call in calls] == [type(None), OutcomeUnknown, OutcomeUnknown]
        assert "cut" in str(calls[1].exception())

    async def test_a_frame_that_ends_in_the_middle_waits_for_its_rest(self) -> None:
        broker = Scripted()
        call = broker.publish(1)
        await asyncio.sleep(0)
        frame = pamqp.frame.marshal(commands.Basic.Ack(1), 1)
        for at in range(len(frame)):
            assert not call.done()
            broker.link.data_received(frame[at : at + 1])
        await call
        assert frame[0] != BODY
