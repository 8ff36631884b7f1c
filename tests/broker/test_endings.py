"""However a session ends, whoever waits learns of it with a reason, and nothing of it is left: no task, no descriptor.

The leak fixture of every test here fails on a task or socket that outlives it.
"""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mesh_runtime.broker import BrokerAt, OutcomeUnknown, Properties, Session, SessionLost, open_session
from mesh_runtime.startup import StageFault
from mesh_runtime.testing.broker import PrivateBroker
from mesh_runtime.testing.gate import Gate, Mode
from mesh_runtime.testing.management import Management
from mesh_runtime.testing.waiting import until
from tests.broker.conftest import USER, Opener

MESSAGE = Properties("test.1", "m-1")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def through(gate: Gate) -> tuple[tuple[str, int], ...]:
    return (("127.0.0.1", gate.port),)


async def test_a_polite_close_takes_milliseconds_and_gives_its_reason(opened: Opener) -> None:
    took = []
    for _ in range(3):  # one of them without a hitch of the machine
        session = await opened()
        began = time.monotonic()
        await session.close()
        took.append(time.monotonic() - began)
        assert session.closed
        assert session.lost.result() == await session.ended() == "the session was closed here"
    assert min(took) < 0.3


async def test_what_was_published_in_the_same_turn_still_leaves_before_a_close(session: Session, opened: Opener) -> None:
    await session.declare_queue("kept")
    other = await opened()
    wire = await other.wire()
    for number in range(100):
        wire.publish("", "kept", b"{}", Properties("test.1", f"m-{number}"))
    await other.close(timeout=5)
    got: list[int] = []
    reader = await session.wire()
    await reader.consume("kept", lambda delivery: got.append(delivery.delivery_tag), no_ack=True)
    await until(lambda: len(got) == 100)


async def test_a_close_on_a_frozen_link_is_bounded(at: BrokerAt, opened: Opener) -> None:
    async with Gate(at.addresses[0][1]) as gate:
        session = await opened(addresses=through(gate))
        await gate.become(Mode.FREEZE)
        began = time.monotonic()
        await session.close(timeout=1.0)
        assert 0.9 < time.monotonic() - began < 5.0  # aiormq's own takes 32 s here


async def pending_calls(session: Session) -> list[asyncio.Task[object]]:
    """One call of each kind that has no answer: a declare, a confirmed publish, a subscription, a new channel."""
    confirmed, wire = await session.confirmed(), await session.wire()
    calls: list[Awaitable[object]] = [
        session.declare_queue("never", exclusive=True),
        confirmed.publish("", "never", b"{}", MESSAGE, timeout=60),
        wire.consume("never", lambda _: None),
        session.wire(),
        session.confirmed(),
    ]
    return [asyncio.ensure_future(each) for each in calls]


async def ends_of(calls: Sequence["asyncio.Future[Any]"]) -> list[BaseException | None]:
    async with asyncio.timeout(10):
        await asyncio.wait(calls)
    assert not any(call.cancelled() for call in calls), "a bare CancelledError"
    return [call.exception() for call in calls]


async def test_a_frozen_link_is_found_in_two_heartbeats_and_every_pending_call_gets_session_lost(at: BrokerAt, opened: Opener) -> None:
    async with Gate(at.addresses[0][1]) as gate:
        session = await opened(addresses=through(gate), heartbeat=1)
        confirmed, wire = await session.confirmed(), await session.wire()
        await gate.become(Mode.FREEZE)
        began = time.monotonic()
        calls: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(session.declare_queue("never", exclusive=True)),
            asyncio.ensure_future(confirmed.publish("", "never", b"{}", MESSAGE, timeout=60)),
            asyncio.ensure_future(wire.consume("never", lambda _: None)),
            asyncio.ensure_future(session.wire()),
        ]
        ends = await ends_of(calls)
        assert 1.0 < time.monotonic() - began < 5.0
        assert [type(end) for end in ends] == [SessionLost, OutcomeUnknown, SessionLost, SessionLost]
        assert "no byte from" in session.lost.result()
        assert f"127.0.0.1:{gate.port}" in session.lost.result()


async def test_an_idle_link_that_lives_is_no_loss(opened: Opener) -> None:
    session = await opened(heartbeat=1)
    _, pending = await asyncio.wait({session.lost}, timeout=4.5)
    assert pending, session.lost.result()


async def test_a_link_busy_with_messages_alone_is_no_loss_for_the_client_below(opened: Opener) -> None:
    """aiormq sees no frame of our channels: unless it is told of life, it takes a link for stuck after three heartbeats."""
    session = await opened(heartbeat=1)
    await session.declare_queue("busy", exclusive=True)
    wire = await session.wire()
    loop = asyncio.get_running_loop()
    await wire.consume("busy", lambda delivery: _again(loop, wire.publish, delivery.body), no_ack=True)
    wire.publish("", "busy", b"{}", MESSAGE)
    _, pending = await asyncio.wait({session.lost}, timeout=7.5)
    assert pending, session.lost.result()


def _again(loop: asyncio.AbstractEventLoop, publish: Callable[..., None], body: bytes) -> None:
    def send() -> None:
        with suppress(SessionLost):  # the test is over
            publish("", "busy", body, MESSAGE)

    loop.call_later(0.05, send)


async def test_a_cut_link_is_a_loss_at_once(at: BrokerAt, opened: Opener) -> None:
    async with Gate(at.addresses[0][1]) as gate:
        session = await opened(addresses=through(gate))
        calls = await pending_calls(session)
        gate.cut()
        ends = await ends_of(calls)
        assert {type(end) for end in ends} <= {SessionLost, OutcomeUnknown}
        assert f"127.0.0.1:{gate.port}" in session.lost.result()
        for call in (session.declare_queue("x"), session.wire(), session.confirmed()):
            with pytest.raises(SessionLost):
                await call


async def test_an_operators_reason_is_told(session: Session, management: Management, vhost: str) -> None:
    rows = await until(lambda: management.connections(vhost))
    assert rows[0].get("user_provided_name", USER) == USER
    await management.close_connection(rows[0]["name"], "maintenance at noon")
    reason = await session.ended()
    assert "320" in reason
    assert "maintenance at noon" in reason


async def test_a_channel_that_the_broker_closes_ends_its_session_with_the_brokers_words(session: Session) -> None:
    wire = await session.wire()
    words: list[str] = []
    wire.on_lost = words.append
    wire.publish("no-such-exchange", "key", b"{}", MESSAGE)
    reason = await session.ended()
    assert "404 NOT_FOUND" in reason
    assert "no-such-exchange" in reason
    assert words == [reason]
    with pytest.raises(SessionLost, match="no-such-exchange"):
        wire.publish("", "key", b"{}", MESSAGE)


async def test_an_abort_ends_every_pending_call_at_once(session: Session) -> None:
    calls = await pending_calls(session)
    await asyncio.sleep(0)
    session.abort("enough")
    assert session.closed
    assert session.lost.result() == "enough"
    assert {type(end) for end in await ends_of(calls)} <= {SessionLost, OutcomeUnknown}


async def forgotten_by_the_broker(management: Management, vhost: str) -> None:
    """The broker gives the end of TLS five seconds before it forgets a connection whose client went without a word."""

    async def nobody() -> bool:
        return not await management.connections(vhost)

    await until(nobody, within=12)


async def test_sessions_that_end_in_every_way_leave_no_descriptor(at: BrokerAt, management: Management, vhost: str) -> None:
    async with Gate(at.addresses[0][1]) as gate:
        await (await open_session(at, USER)).close()
        before = descriptors()
        for number in range(20):
            session = await open_session(replace(at, addresses=through(gate)), USER)
            match number % 3:
                case 0:
                    await session.close()
                case 1:
                    session.abort()
                case 2:
                    gate.cut()
                    await session.ended()
        await until(lambda: not gate.open_connections)
        await until(lambda: descriptors() <= before, f"no more than {before} descriptors")
        await until(lambda: len(asyncio.all_tasks()) == 1, "no task left")
    await forgotten_by_the_broker(management, vhost)


@pytest.mark.timeout(120)
async def test_two_hundred_cancelled_attempts_leave_nothing(at: BrokerAt, management: Management, vhost: str) -> None:
    took = []
    for _ in range(5):
        began = time.monotonic()
        await (await open_session(at, USER)).close()
        took.append(time.monotonic() - began)
    usual = min(took)
    before = descriptors()
    draw = random.Random(20261130)
    cancelled = 0
    for _ in range(200):
        attempt = asyncio.ensure_future(open_session(at, USER))
        await asyncio.wait({attempt}, timeout=draw.uniform(0, usual))
        attempt.cancel()
        await asyncio.wait({attempt})
        if attempt.cancelled():
            cancelled += 1
        else:
            await attempt.result().close()
    assert cancelled > 50
    await until(lambda: descriptors() <= before, f"no more than {before} descriptors")
    await until(lambda: len(asyncio.all_tasks()) == 1, "no task left")
    await forgotten_by_the_broker(management, vhost)


async def test_an_attempt_that_is_cancelled_at_a_silent_port_ends_at_once(at: BrokerAt) -> None:
    async with Gate(at.addresses[0][1], mode=Mode.SILENT) as gate:
        attempt = asyncio.ensure_future(open_session(replace(at, addresses=through(gate)), USER))
        await until(lambda: gate.open_connections)
        began = time.monotonic()
        attempt.cancel()
        await asyncio.wait({attempt})
        assert attempt.cancelled()
        assert time.monotonic() - began < 1.0
        await until(lambda: not gate.open_connections)


async def test_a_memory_alarm_is_told_and_a_publish_is_unknown_at_its_deadline(session: Session, broker: PrivateBroker) -> None:
    """The broker stops reading from whoever publishes; heartbeats stay good, so only deadlines and the broker's own word tell."""
    words: list[str] = []
    session.on_blocked = words.append
    await session.declare_queue("full", quorum=True)
    confirmed = await session.confirmed()
    await asyncio.to_thread(broker.set_alarm, True)
    try:
        with pytest.raises(OutcomeUnknown, match="memory"):
            await confirmed.publish("", "full", b"{}", MESSAGE, timeout=3.0)
        assert "memory" in session.blocked
        assert words == [session.blocked]
        assert not session.closed
    finally:
        await asyncio.to_thread(broker.set_alarm, False)
    await until(lambda: not session.blocked)
    assert words[-1] == ""
    await until(lambda: not confirmed.unconfirmed, "the late confirmation")
    await confirmed.publish("", "full", b"{}", Properties("test.1", "m-2"), timeout=5)


async def test_a_frozen_broker_makes_the_login_wait_and_then_fail_in_words(at: BrokerAt, broker: PrivateBroker) -> None:
    await asyncio.to_thread(broker.pause)
    try:
        with pytest.raises(StageFault, match="does not answer"):
            await open_session(at, USER)
    finally:
        await asyncio.to_thread(broker.resume)


def test_descriptors_are_counted() -> None:
    before = descriptors()
    reading, writing = os.pipe()
    assert descriptors() == before + 2
    os.close(reading)
    os.close(writing)
