"""The broker's refusals of queues and bindings: each its own cause, and none costs the session."""

import asyncio
from functools import partial

import pytest

from mesh_runtime.broker import BrokerAt, Delivery, Properties, Session
from mesh_runtime.startup import PACES, Kind, Stage, StageFault
from mesh_runtime.startup.pace import Pace
from mesh_runtime.testing.gate import Gate, Mode
from mesh_runtime.testing.management import Management
from mesh_runtime.testing.waiting import until
from tests.broker.conftest import USER, Opener, begun


async def refused(session: Session, call: object, code: str, kind: Kind, on: str) -> StageFault:
    with pytest.raises(StageFault) as caught:
        await call  # type: ignore[misc]  # a coroutine
    cause = caught.value.cause
    assert (caught.value.stage, cause.code, cause.kind, cause.on) == (Stage.TOPOLOGY, code, kind, on), cause
    assert not session.closed
    await session.declare_queue("still-works", exclusive=True)
    return caught.value


async def test_a_foreign_queue_is_blocked_with_the_brokers_words(session: Session, management: Management, vhost: str) -> None:
    await management.put_queue(vhost, "mine", {"x-queue-type": "classic"})
    fault = await refused(session, session.declare_queue("mine", quorum=True), "foreign-queue", Kind.BLOCKED, "mine")
    assert "406 PRECONDITION_FAILED - inequivalent arg 'x-queue-type'" in fault.cause.text


async def test_a_missing_permission_is_blocked_and_names_the_resource(session: Session, management: Management, vhost: str) -> None:
    await management.put_permissions(vhost, USER, configure="^still-works$", write="^$", read="^$")
    fault = await refused(session, session.declare_queue("forbidden"), "no-permission", Kind.BLOCKED, "forbidden")
    assert "403 ACCESS_REFUSED" in fault.cause.text
    await management.put_permissions(vhost, USER)


async def test_a_binding_that_is_not_permitted_is_blocked(session: Session, management: Management, vhost: str) -> None:
    await management.put_exchange(vhost, "mesh.asks")
    await management.put_topic_permissions(vhost, USER, "mesh.asks", write="^$", read="^lookup.mine$")
    await session.declare_queue("q", exclusive=True)
    await session.bind("q", "mesh.asks", "lookup.mine")
    with pytest.raises(StageFault) as caught:
        await session.bind("q", "mesh.asks", "lookup.other")
    assert (caught.value.cause.code, caught.value.cause.kind) == ("no-permission", Kind.BLOCKED)


async def test_a_missing_exchange_is_waited_for(session: Session, management: Management, vhost: str) -> None:
    await session.declare_queue("q", exclusive=True)
    await refused(session, session.bind("q", "mesh.asks", "k"), "no-exchange", Kind.WAITING, "mesh.asks")
    await management.put_exchange(vhost, "mesh.asks")
    await session.bind("q", "mesh.asks", "k")


async def test_a_queue_that_another_session_holds_is_waited_for(session: Session, opened: Opener) -> None:
    other = await opened()
    await other.declare_queue("held", exclusive=True)
    await refused(session, session.declare_queue("held", exclusive=True), "locked", Kind.WAITING, "held")
    await other.close(timeout=5)
    await session.declare_queue("held", exclusive=True)


async def test_a_missing_queue_is_waited_for(session: Session) -> None:
    await refused(session, session.consumer_count("nothing"), "no-queue", Kind.WAITING, "nothing")


async def test_silence_is_waited_for_until_the_deadline(at: BrokerAt, opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACES, Stage.TOPOLOGY, Pace(deadline=0.3, first=0.1, cap=0.1))
    async with Gate(at.addresses[0][1]) as gate:
        session = await opened(addresses=(("127.0.0.1", gate.port),))
        await gate.become(Mode.FREEZE)
        with pytest.raises(StageFault) as caught:
            await session.declare_queue("q", exclusive=True)
        assert (caught.value.cause.code, caught.value.cause.kind) == ("silent", Kind.WAITING)
        assert "0.3 s" in caught.value.cause.text
        await gate.become(Mode.PASS)
        monkeypatch.undo()
        await session.declare_queue("q2", exclusive=True)


async def test_calls_at_the_same_time_each_get_their_own_answer(session: Session) -> None:
    ends = await asyncio.gather(
        *(session.declare_queue(f"q{n}", exclusive=True) if n % 2 else session.consumer_count(f"none{n}") for n in range(20)),
        return_exceptions=True,
    )
    for number, end in enumerate(ends):
        if number % 2:
            assert end is None
        else:
            assert isinstance(end, StageFault)
            assert f"none{number}" in end.cause.text


async def test_a_call_that_is_given_up_does_not_spoil_the_next(session: Session) -> None:
    given_up = asyncio.ensure_future(session.consumer_count("missing"))
    await asyncio.sleep(0.001)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    await session.declare_queue("q", exclusive=True)
    assert await session.consumer_count("q") == 0


async def test_calls_that_are_given_up_do_not_use_up_channels(session: Session) -> None:
    cancelled = 0
    for number in range(5):
        given_up = asyncio.ensure_future(session.declare_queue(f"q{number}", exclusive=True))
        await until(partial(begun, session, given_up), every=0)
        given_up.cancel()
        await asyncio.wait({given_up})
        cancelled += given_up.cancelled()
    assert cancelled > 1
    await session.declare_queue("q", exclusive=True)
    await until(lambda: len(session._link.channels) == 1)


async def test_refusals_do_not_use_up_channels(session: Session) -> None:
    for _ in range(30):
        with pytest.raises(StageFault):
            await session.consumer_count("missing")
    await session.declare_queue("q", exclusive=True)
    await until(lambda: len(session._link.channels) == 1)


async def test_bind_and_unbind_route_and_stop_routing(session: Session, management: Management, vhost: str) -> None:
    await management.put_exchange(vhost, "x")
    await session.declare_queue("q", exclusive=True)
    await session.bind("q", "x", "k")
    wire, got, back = await session.wire(), list[Delivery](), list[object]()
    wire.on_returned = back.append
    await wire.consume("q", got.append, no_ack=True)
    assert await session.consumer_count("q") == 1
    wire.publish("x", "k", b"1", Properties("t.1", "m"))
    await until(lambda: got)
    await session.unbind("q", "x", "k")
    wire.publish("x", "k", b"2", Properties("t.1", "m"))
    await until(lambda: back)
    assert len(got) == 1
    await session.delete_queue("q")
    await session.delete_queue("q")
