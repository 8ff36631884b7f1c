"""Fetching: each message when it is asked for, a plain word when there is none, and nothing is gone that was not settled."""

import pytest

from mesh_runtime.broker import Getter, Properties, Session
from mesh_runtime.startup import StageFault
from mesh_runtime.testing.waiting import until

LARGE = bytes(range(256)) * 2048


async def filled(session: Session, *bodies: bytes) -> None:
    await session.declare_queue("q", quorum=True)
    await session.bind("q", "amq.topic", "k")
    channel = await session.confirmed()
    for number, body in enumerate(bodies):
        await channel.publish("amq.topic", "k", body, Properties(type="t.1", message_id=str(number), headers={"n": number}), timeout=5)


async def fetched(getter: Getter) -> list[bytes]:
    found: list[bytes] = []
    while (delivery := await getter.get("q")) is not None:
        found.append(delivery.body)
    return found


async def test_messages_are_fetched_whole_and_in_order_and_the_end_is_told(session: Session) -> None:
    await filled(session, b"", b"x", LARGE)
    getter = await session.getter()
    left, found = [], []
    for _ in range(3):
        delivery = await getter.get("q")
        assert delivery is not None
        found.append(delivery)
        left.append(getter.left)
    assert [one.body for one in found] == [b"", b"x", LARGE]
    assert [(one.message_id, one.headers["n"], one.exchange, one.routing_key) for one in found] == [
        (str(number), number, "amq.topic", "k") for number in range(3)
    ]
    assert left == [2, 1, 0]
    assert await getter.get("q") is None
    assert getter.left == 0


async def test_what_is_not_settled_is_there_again_and_what_is_settled_is_not(session: Session) -> None:
    await filled(session, b"0", b"1", b"2", b"3")
    getter = await session.getter()
    tags = {one.body: one.delivery_tag for _ in range(4) if (one := await getter.get("q")) is not None}
    assert await session.consumer_count("q") == 4, "the broker counts each message that is held"
    getter.ack(tags[b"2"])
    getter.nack(tags[b"1"])
    getter.forget()

    async def free() -> bool:
        return await session.consumer_count("q") == 0

    await until(free, "nobody holds a message")
    assert sorted(await fetched(await session.getter())) == [b"0", b"1", b"3"]


async def test_a_queue_that_is_not_there_costs_the_channel_alone(session: Session) -> None:
    getter = await session.getter()
    with pytest.raises(StageFault) as fault:
        await getter.get("gone")
    assert fault.value.cause.code == "no-queue"
    assert not session.closed
    await filled(session, b"0")
    assert await fetched(await session.getter()) == [b"0"]
