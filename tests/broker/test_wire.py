"""The channel without confirmations: what is sent arrives as it was sent, what nobody wants comes back, what is too large costs nothing."""

import asyncio
import os
import time

import pytest

from mesh_runtime.broker import ChannelLost, Delivery, Properties, Returned, Session, SessionLost, TooLarge, Wire
from mesh_runtime.contracts.wire import BODY_LIMIT, HEADER_LIMIT
from mesh_runtime.startup import StageFault
from mesh_runtime.testing.management import Management
from mesh_runtime.testing.waiting import until
from tests.broker.conftest import USER, Opener

FULL = Properties(
    type="overlay-peers.1",
    message_id="m-1",
    correlation_id="c-1",
    reply_to="alpha@test.0123",
    app_id="alpha@test",
    user_id=USER,
    expiration=30_000,
    headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "mesh-epoch": 7, "ü": "é"},
    persistent=True,
)


async def loop_back(session: Session, queue: str = "loop") -> tuple[Wire, list[Delivery]]:
    """A wire, and the list of what came to its own queue."""
    await session.declare_queue(queue, exclusive=True)
    wire = await session.wire()
    got: list[Delivery] = []
    await wire.consume(queue, got.append, no_ack=True)
    return wire, got


async def test_every_property_arrives_as_it_was_sent(session: Session) -> None:
    wire, got = await loop_back(session)
    before = asyncio.get_running_loop().time()
    wire.publish("", "loop", b'{"a": 1}', FULL)
    await until(lambda: got)
    delivery = got[0]
    assert delivery.body == b'{"a": 1}'
    assert (delivery.type, delivery.message_id, delivery.correlation_id) == (FULL.type, FULL.message_id, FULL.correlation_id)
    assert (delivery.app_id, delivery.user_id, delivery.reply_to) == (FULL.app_id, USER, FULL.reply_to)
    assert (delivery.expiration, delivery.headers) == ("30000", FULL.headers)
    assert (delivery.exchange, delivery.routing_key, delivery.redelivered, delivery.delivery_tag) == ("", "loop", False, 1)
    assert before <= delivery.received <= asyncio.get_running_loop().time()
    assert not delivery.malformed


async def test_absent_properties_are_empty(session: Session) -> None:
    wire, got = await loop_back(session)
    wire.publish("", "loop", b"", Properties("", ""))
    await until(lambda: got)
    delivery = got[0]
    assert (delivery.body, delivery.type, delivery.message_id, delivery.user_id, delivery.reply_to) == (b"", "", "", "", "")
    assert (delivery.expiration, delivery.headers) == (None, {})


@pytest.mark.parametrize("size", [0, 1, 131_063, 131_064, 131_065, BODY_LIMIT])
async def test_a_body_of_any_size_up_to_the_limit_arrives_whole(session: Session, size: int) -> None:
    wire, got = await loop_back(session)
    body = os.urandom(size)
    wire.publish("", "loop", body, FULL)
    wire.publish("", "loop", b"after", FULL)
    await until(lambda: len(got) == 2)
    assert [each.body for each in got] == [body, b"after"]


async def test_what_is_too_large_is_refused_and_leaves_the_channel_alive(session: Session) -> None:
    wire, got = await loop_back(session)
    with pytest.raises(TooLarge) as body:
        wire.publish("", "loop", b"x" * (BODY_LIMIT + 1), FULL)
    with pytest.raises(TooLarge) as headers:
        wire.publish("", "loop", b"{}", Properties("t.1", "m", headers={"h": "x" * HEADER_LIMIT}))
    assert (body.value.size, body.value.limit, body.value.what) == (BODY_LIMIT + 1, BODY_LIMIT, "body")
    assert (headers.value.what, headers.value.limit) == ("headers", HEADER_LIMIT)
    assert headers.value.size > HEADER_LIMIT
    with pytest.raises(ValueError, match="255"):
        wire.publish("", "k" * 256, b"{}", FULL)
    wire.publish("", "loop", b"{}", FULL)
    await until(lambda: got)
    assert not session.closed


@pytest.mark.parametrize(("given", "sent"), [(-5, "1"), (0, "1"), (1, "1"), (10**12, "86400000")])
async def test_an_expiration_is_clamped_to_what_the_broker_takes(session: Session, given: int, sent: str) -> None:
    wire, got = await loop_back(session)
    wire.publish("", "loop", b"", Properties("t.1", "m", expiration=given))
    await until(lambda: got)
    assert got[0].expiration == sent


async def test_what_nobody_is_bound_to_comes_back_in_milliseconds(session: Session) -> None:
    wire, got = await loop_back(session)
    back: list[Returned] = []
    wire.on_returned = back.append
    began = time.monotonic()
    wire.publish("", "nobody", os.urandom(300_000), FULL)
    await until(lambda: back, every=0.001)
    assert time.monotonic() - began < 3.0
    assert back == [Returned("m-1", "c-1", "overlay-peers.1", 312, "NO_ROUTE", "", "nobody")]
    wire.publish("", "nobody", b"", FULL, mandatory=False)
    wire.publish("", "loop", b"", FULL)
    await until(lambda: got)
    assert len(back) == 1


async def test_many_messages_in_one_turn_keep_their_order_and_leave_in_one_write(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    wire, got = await loop_back(session)
    writes: list[int] = []
    tls = session._link._tls
    assert tls is not None
    real = tls.write

    def counted(data: bytes) -> None:
        writes.append(len(data))
        real(data)

    monkeypatch.setattr(tls, "write", counted)
    for number in range(500):
        wire.publish("", "loop", str(number).encode(), FULL)
    assert session.backlog > 500 * 100
    await until(lambda: len(got) == 500)
    assert [each.body for each in got] == [str(number).encode() for number in range(500)]
    assert len(writes) == 1
    assert session.backlog == 0


async def test_a_consumer_whose_queue_is_deleted_is_told(session: Session, management: Management, vhost: str) -> None:
    await session.declare_queue("doomed", quorum=True)
    wire = await session.wire()
    words: list[str] = []
    await wire.consume("doomed", lambda _: None, on_cancelled=words.append)
    await management.delete_queue(vhost, "doomed")
    await until(lambda: words)
    assert "doomed" in words[0]
    assert not session.closed
    await session.declare_queue("doomed", quorum=True)
    await wire.consume("doomed", lambda _: None)
    assert await session.consumer_count("doomed") == 1


async def test_a_cancelled_consumer_gets_nothing_more_and_what_it_has_can_be_settled(session: Session) -> None:
    await session.declare_queue("q", quorum=True)
    wire, got = await session.wire(), list[Delivery]()
    consumer = await wire.consume("q", got.append, prefetch=1)
    wire.publish("", "q", b"1", FULL)
    wire.publish("", "q", b"2", FULL)
    await until(lambda: got)
    await wire.cancel(consumer)
    assert await session.consumer_count("q") == 1, "the broker counts it while it holds a delivery"
    got[0].consumer.ack(got[0].delivery_tag)

    async def uncounted() -> bool:
        return await session.consumer_count("q") == 0

    await until(uncounted)
    assert len(got) == 1
    again: list[Delivery] = []
    other = await session.wire()
    await other.consume("q", again.append)
    await until(lambda: again)
    assert [each.body for each in again] == [b"2"]


async def test_a_channel_that_acknowledges_has_one_consumer(session: Session) -> None:
    await session.declare_queue("q", exclusive=True)
    wire = await session.wire()
    await wire.consume("q", lambda _: None)
    for no_ack in (False, True):
        with pytest.raises(ValueError, match="one consumer"):
            await wire.consume("q", lambda _: None, no_ack=no_ack)
    fast = await session.wire()
    await fast.consume("q", lambda _: None, no_ack=True)
    await fast.consume("q", lambda _: None, no_ack=True)


async def test_a_queue_that_is_not_there_is_a_fault_at_topology_and_the_end_of_the_session(session: Session) -> None:
    wire = await session.wire()
    with pytest.raises(StageFault) as caught:
        await wire.consume("missing", lambda _: None)
    assert caught.value.cause.code == "no-queue"
    assert "missing" in await session.ended()


async def test_a_closed_channel_raises_and_its_session_goes_on(session: Session) -> None:
    wire, other = await session.wire(), await session.wire()
    lost: list[str] = []
    wire.on_lost = lost.append
    await wire.close()
    with pytest.raises(ChannelLost):
        wire.publish("", "q", b"", FULL)
    with pytest.raises(ChannelLost):
        wire.ack(1)
    other.publish("", "nobody", b"", FULL)
    again = await session.wire()
    assert again.number == wire.number, "its number is free again"
    assert lost == []


async def test_a_callback_that_raises_ends_the_session_loudly(opened: Opener) -> None:
    session = await opened()
    await session.declare_queue("q", exclusive=True)
    wire = await session.wire()

    def broken(_: Delivery) -> None:
        raise ZeroDivisionError("in a callback")

    seen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context.get("exception")))
    await wire.consume("q", broken, no_ack=True)
    wire.publish("", "q", b"", FULL)
    assert "ZeroDivisionError: in a callback" in await session.ended()
    assert [type(each) for each in seen] == [ZeroDivisionError]


async def test_a_session_that_is_lost_takes_its_wires_with_it(session: Session) -> None:
    wire, got = await loop_back(session)
    lost: list[str] = []
    wire.on_lost = lost.append
    session.abort("cut")
    assert lost == ["cut"]
    with pytest.raises(SessionLost, match="cut"):
        wire.publish("", "loop", b"", FULL)
    assert got == []
