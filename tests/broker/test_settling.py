"""Acknowledgements settle just what was finished, in few frames; what is not finished goes back to its queue."""

import asyncio
import random

import pamqp.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from mesh_runtime.broker import Delivery, Properties, Session
from mesh_runtime.broker.settling import STUCK, Settling
from mesh_runtime.testing.waiting import until
from tests.broker.conftest import Opener


class Written:
    """A link that only notes what is sent, and a broker that settles by RabbitMQ's rules."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.hooks: list[object] = []

    def send(self, frame: bytes) -> None:
        self.frames.append(frame)

    def before_flush(self, hook: object) -> None:
        self.hooks.append(hook)

    def turn(self) -> None:
        hooks, self.hooks = self.hooks, []
        for hook in hooks:
            hook()  # type: ignore[operator]


def settled_at_the_broker(frames: list[bytes], delivered: int) -> tuple[set[int], set[int]]:
    """What a broker has as acknowledged and as given back; raises where RabbitMQ would close the channel (406)."""
    unsettled = set(range(1, delivered + 1))
    acked: set[int] = set()
    nacked: set[int] = set()
    for frame in frames:
        _, _, method = pamqp.frame.unmarshal(frame)
        assert isinstance(method, commands.Basic.Ack | commands.Basic.Nack)
        tag = method.delivery_tag or 0
        assert tag in unsettled, f"406 unknown delivery tag {tag}"
        covered = {each for each in unsettled if each <= tag} if method.multiple else {tag}
        unsettled -= covered
        (acked if isinstance(method, commands.Basic.Ack) else nacked).update(covered)
    return acked, nacked


@settings(deadline=None)
@given(st.data())
def test_in_any_order_just_the_finished_prefix_and_the_returned_are_settled(data: st.DataObject) -> None:
    """Whatever is finished or given back in whatever order and turns: never an unfinished one, never one twice."""
    total = data.draw(st.integers(1, 30))
    order = data.draw(st.permutations(range(1, total + 1)))
    finished = order[: data.draw(st.integers(0, total))]
    back = set(data.draw(st.sets(st.sampled_from(finished)))) if finished else set()

    async def run() -> None:
        link = Written()
        settling = Settling(link, 1)  # type: ignore[arg-type]  # only these two methods are used
        settling.delivered = total
        for tag in finished:
            if tag in back:
                settling.nack(tag, requeue=True)
            else:
                settling.ack(tag)
            if data.draw(st.booleans()):
                link.turn()
            if data.draw(st.integers(0, 9)) == 0:
                settling._unstick()
        link.turn()
        acked, nacked = settled_at_the_broker(link.frames, total)
        assert nacked == back
        assert acked <= set(finished) - back
        settling._unstick()
        link.turn()
        acked, _ = settled_at_the_broker(link.frames, total)
        assert acked == set(finished) - back
        settling.stop()

    asyncio.run(run())


async def test_a_turn_of_the_loop_costs_one_frame() -> None:
    link = Written()
    settling = Settling(link, 1)  # type: ignore[arg-type]  # only these two methods are used
    settling.delivered = 1000
    for tag in random.Random(1).sample(range(1, 1001), 1000):
        settling.ack(tag)
    link.turn()
    assert len(link.frames) == 1
    assert settled_at_the_broker(link.frames, 1000)[0] == set(range(1, 1001))


async def test_what_is_finished_behind_a_slow_one_is_settled_singly_soon() -> None:
    link = Written()
    settling = Settling(link, 1)  # type: ignore[arg-type]  # only these two methods are used
    settling.delivered = 11
    began = asyncio.get_running_loop().time()
    for tag in range(2, 11):
        settling.ack(tag)
    link.turn()
    assert link.frames == []
    await until(lambda: link.frames)
    assert asyncio.get_running_loop().time() - began >= STUCK
    assert settled_at_the_broker(link.frames, 10)[0] == set(range(2, 11))
    settling.ack(1)
    link.turn()
    assert settled_at_the_broker(link.frames, 10)[0] == set(range(1, 11))
    settling.ack(11)
    link.turn()
    assert settled_at_the_broker(link.frames, 11)[0] == set(range(1, 12)), "the prefix moves on over what was settled singly"


@pytest.mark.parametrize("tag", [0, 1, 2, 4])
async def test_what_is_settled_already_or_never_came_is_refused_before_it_costs_the_channel(tag: int) -> None:
    link = Written()
    settling = Settling(link, 1)  # type: ignore[arg-type]  # only these two methods are used
    settling.delivered = 3
    settling.ack(1)
    settling.nack(2, requeue=False)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"delivery {tag}"):
            settling.ack(tag)
        with pytest.raises(ValueError, match=f"delivery {tag}"):
            settling.nack(tag, requeue=True)
        link.turn()


async def test_unfinished_deliveries_go_back_and_finished_ones_do_not(session: Session, opened: Opener) -> None:
    """At the real broker: 20 deliveries, the first and every third unfinished, then the session is cut."""
    await session.declare_queue("q", quorum=True)
    channel = await session.confirmed()
    for number in range(1, 21):
        await channel.publish("", "q", str(number).encode(), Properties("test.1", f"m-{number}"), timeout=5)
    worker = await opened()
    wire, got = await worker.wire(), list[Delivery]()
    await wire.consume("q", got.append, prefetch=50)
    await until(lambda: len(got) == 20)
    unfinished = {1, *range(3, 21, 3)}
    for delivery in got:
        if delivery.delivery_tag not in unfinished:
            delivery.consumer.ack(delivery.delivery_tag)
    await until(lambda: not wire._settling._finished)
    await wire.call(commands.Basic.Qos(prefetch_count=50))  # the broker has read all that was sent before it answers this
    worker.abort()
    again: list[Delivery] = []
    await (await session.wire()).consume("q", again.append, no_ack=True)
    await until(lambda: len(again) == len(unfinished))
    assert {int(each.body) for each in again} == unfinished
    assert all(each.redelivered for each in again)


async def test_what_is_finished_behind_an_unfinished_one_is_settled_before_the_channel_closes(session: Session) -> None:
    await session.declare_queue("q", quorum=True)
    channel = await session.confirmed()
    for number in range(1, 4):
        await channel.publish("", "q", str(number).encode(), Properties("test.1", f"m-{number}"), timeout=5)
    wire, got = await session.wire(), list[Delivery]()
    await wire.consume("q", got.append, prefetch=50)
    await until(lambda: len(got) == 3)
    for delivery in got[1:]:
        delivery.consumer.ack(delivery.delivery_tag)
    await wire.close()

    async def given_back() -> bool:
        return await session.consumer_count("q") == 0

    await until(given_back, "the queue knows that the channel is closed")
    await channel.publish("", "q", b"last", Properties("test.1", "m-last"), timeout=5)
    again: list[Delivery] = []
    await (await session.wire()).consume("q", again.append, no_ack=True)
    await until(lambda: again and again[-1].body == b"last")  # what was given back comes before it
    assert [each.body for each in again] == [b"1", b"last"]


async def test_a_nack_gives_back_and_a_nack_without_requeue_drops(session: Session) -> None:
    await session.declare_queue("q", exclusive=True)
    wire, got = await session.wire(), list[tuple[bytes, bool]]()

    def handle(delivery: Delivery) -> None:
        got.append((delivery.body, delivery.redelivered))
        delivery.consumer.nack(delivery.delivery_tag, requeue=not delivery.redelivered)

    await wire.consume("q", handle)
    wire.publish("", "q", b"x", Properties("test.1", "m"))
    await until(lambda: len(got) == 2)
    assert got == [(b"x", False), (b"x", True)]
    wire.publish("", "q", b"y", Properties("test.1", "m"))
    await until(lambda: len(got) == 4)
    assert not session.closed
