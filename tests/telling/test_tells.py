"""Tells: confirmed, not sent or unknown; handled and acknowledged, given back, or parked where a person sees them with their reason."""

import asyncio
import os
import time
from functools import partial

import pytest

from mesh_runtime import Found, NotSent, Reason, SendUnknown, Unanswered
from mesh_runtime.contracts.rights import DELIVERY_LIMIT
from mesh_runtime.testing.gate import Gate
from mesh_runtime.testing.running import Running, Runtimes
from mesh_runtime.testing.waiting import until
from tests.asking.parts import OfTheHost, Oracle, Say, Seeker, Wanted
from tests.raw import parked, raw
from tests.records import Records, said


def came(oracle: Running, times: int) -> bool:
    seen: list[str] = oracle.module.seen
    return seen == ["hold 1"] * times


DEEP = b'{"how": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"
UNREADABLE = {
    "empty": b"",
    "cut off": b"{",
    "no UTF-8": b'{"how": "\xff\xfe"}',
    "null": b"null",
    "a list": b"[1, 2]",
    "deep": DEEP,
    "wrong type": b'{"how": {"not": "text"}}',
}


async def test_b24_what_cannot_be_read_is_answered_or_parked_once_and_the_next_is_handled(runtimes: Runtimes) -> None:
    """B24: seven undecodable bodies as asks and as tells: asks are answered ``malformed``, tells parked with their reasons, each once.

    A sound one after them is handled within a second, and then the process is idle.

    Removal: mesh_runtime/telling/listening.py: raise _Hopeless(f"malformed: {complaint_of(malformed)}") from None
    Assertion: len(reasons) == len(UNREADABLE)
    """
    async with runtimes.run(Oracle) as oracle, raw(runtimes, "seeker@raw", tells=("wanted.1",)) as sender:
        await oracle.ready()
        asks = {name: sender.ask("say.1", body) for name, body in UNREADABLE.items()}
        nowhere = sender.ask("say.1", b'{"how": "to nowhere"}', reply_to="")
        foreign = sender.ask("say.1", b'{"how": "to another"}', reply_to="other@raw." + "0" * 32)
        for body in UNREADABLE.values():
            sender.tell("wanted.1", body)
        before = time.monotonic()
        good, told = sender.ask("say.1", b'{"how": "good"}'), sender.tell("wanted.1", b'{"number": 77}')
        await until(lambda: sender.reply_of(good), "the sound ask is answered")
        await until(lambda: 77 in oracle.module.kept, "the sound tell is handled")
        assert time.monotonic() - before < 3.0
        assert told
        for name, message_id in asks.items():
            reply = sender.reply_of(message_id)
            assert reply is not None, f"{name}: not answered"
            assert b'"code":"malformed"' in reply.body, f"{name}: {reply.body!r}"
        assert sender.reply_of(nowhere) is None
        assert sender.reply_of(foreign) is None
        assert oracle.module.seen == ["good", "keep 77"], "a handler was called with what cannot be read"
        put_aside = await parked(runtimes, "oracle@alpha", len(UNREADABLE))
        reasons = {
            str(one.headers["mesh-park-reason"]) for one in put_aside if str(one.headers["mesh-park-reason"]).startswith("malformed: ")
        }
        assert len(reasons) == len(UNREADABLE), f"reasons are not distinct: {sorted(reasons)}"
        assert {one.body for one in put_aside} == set(UNREADABLE.values())
        assert all(one.headers["mesh-park-count"] == 1 for one in put_aside)
        assert all(one.headers["mesh-park-sender"] == "seeker@raw" for one in put_aside)
        assert oracle.state.sessions == 1
        busy = sum(os.times()[:2])
        await asyncio.sleep(1.0)  # idle is a state over time
        assert sum(os.times()[:2]) - busy < 0.3, "the process is not idle"


async def test_a_tell_that_nobody_listens_to_was_not_sent(runtimes: Runtimes) -> None:
    async with runtimes.run(Seeker) as seeker:
        await seeker.ready()
        with pytest.raises(NotSent, match="nobody listens"):
            await seeker.module.tell(Wanted())
        with pytest.raises(NotSent, match=r"may not publish .*OfTheHost is told by host"):
            await seeker.module.tell(OfTheHost())


async def test_a_tell_by_whom_it_may_not_come_is_parked_unread(runtimes: Runtimes) -> None:
    """The login that the broker validated is judged, also where the broker's permissions would let the tell through."""
    async with runtimes.run(Oracle) as oracle, raw(runtimes, "host@alpha", tells=("of-the-host.1",)) as host:
        await oracle.ready()
        async with raw(runtimes, "seeker@raw", tells=("of-the-host.1", "unheard.1", "wanted.1")) as stranger:
            stranger.tell("of-the-host.1", b'{"number": 1}')
            stranger.tell("of-the-host.1", b'{"number": 2}', user_id="")
            stranger.tell("wanted.1", b"{}", type="unheard.1")
            host.tell("of-the-host.1", b'{"number": 4}')
            await until(lambda: oracle.module.kept == [4], "the host's own tell is handled")
            put_aside = await parked(runtimes, "oracle@alpha", 3)
            reasons = sorted(str(one.headers["mesh-park-reason"]) for one in put_aside)
            assert reasons == [
                "not-authorised: host tells of-the-host.1, not a login that the broker did not validate",
                "not-authorised: host tells of-the-host.1, not seeker@raw",
                "not-handled: nobody here is told 'unheard.1'",
            ]


async def test_a_handler_that_raises_is_tried_again_and_then_its_tell_is_parked(runtimes: Runtimes, records: Records) -> None:
    async with runtimes.run(Oracle) as oracle, runtimes.run(Seeker, "beta") as seeker:
        await oracle.ready()
        await seeker.ready()
        for how in ("raise", "exit"):
            await seeker.module.tell(Wanted(how=how, number=5))
        await seeker.module.tell(Wanted(number=6))
        await until(lambda: oracle.module.kept == [6], "the next one is handled meanwhile")
        put_aside = await parked(runtimes, "oracle@alpha", 2)
        for one in put_aside:
            assert one.headers["mesh-park-count"] == 4
            assert str(one.headers["mesh-park-first"]) < str(one.headers["mesh-park-last"])
            assert one.headers["mesh-park-sender"] == "seeker@beta"
        assert {str(one.headers["mesh-park-reason"]) for one in put_aside} == {
            "raised: Oracle.want: RuntimeError: as it was told to",
            "raised: Oracle.want: SystemExit: 3",
        }
        errors = said(records, "a handler of tells raised", handler="Oracle.want")
        assert len(errors) == 8
        assert all(one["correlation_id"] and one["sender"] == "seeker@beta" for one in errors)

        async def settled() -> bool:
            row = await runtimes.management.queue(runtimes.vhost, "tells.oracle@alpha")
            return row.get("messages") == 0

        await until(settled, "nothing is left in the queue", within=10)


async def test_b28_a_cut_while_a_tell_is_handled_brings_it_again(runtimes: Runtimes) -> None:
    """The handler is told to stop, no task is left, and the broker delivers it again in the next session."""
    async with Gate(runtimes.broker.ports.amqps) as gate, runtimes.run(Seeker, "beta") as seeker:
        runtimes.port = gate.port
        async with runtimes.run(Oracle) as oracle:
            await oracle.ready()
            await seeker.ready()
            await seeker.module.tell(Wanted(how="hold", number=1))
            await oracle.module.held.wait()
            gate.cut()
            await until(lambda: oracle.state.sessions == 2, "a new session stands", within=10)
            oracle.module.go.set()
            await until(lambda: oracle.module.kept == [1], "it is handled in the end")
            assert oracle.module.seen == ["hold 1", "hold 1"]
            await until(lambda: not oracle.life.parts.listener._at_work, "no task is stuck")


async def test_what_was_delivered_in_vain_is_parked_before_the_broker_drops_it(runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lost link counts as a delivery; at the policy's limit the broker drops a tell without a word."""
    monkeypatch.setattr("mesh_runtime.telling.listening.MOST_DELIVERIES", 3)
    assert DELIVERY_LIMIT == 100
    async with Gate(runtimes.broker.ports.amqps) as gate, runtimes.run(Seeker, "beta") as seeker:
        runtimes.port = gate.port
        async with runtimes.run(Oracle) as oracle:
            await oracle.ready()
            await seeker.ready()
            await seeker.module.tell(Wanted(how="hold", number=1))
            for session in range(1, 4):
                await until(partial(came, oracle, session), f"it came in session {session}", within=10)
                gate.cut()
            (put_aside,) = await parked(runtimes, "oracle@alpha", 1)
            assert put_aside.headers["mesh-park-reason"] == "never-settled: it came 4 times, and no receiver lived to settle it"
            assert put_aside.headers["mesh-park-count"] == 4
            assert "x-delivery-count" not in put_aside.headers
            policies = await runtimes.management._list("policies", runtimes.vhost)
            assert [one["definition"] for one in policies if one["name"] == "mesh-tells"] == [{"delivery-limit": 100}]


async def test_what_cannot_be_written_again_is_parked_without_its_headers_and_routes_to_nobody(runtimes: Runtimes) -> None:
    async with runtimes.run(Oracle) as oracle, raw(runtimes, "seeker@raw", tells=("wanted.1",)) as sender:
        await oracle.ready()
        sender.tell("wanted.1", b"[]", headers={"CC": ["all.wanted.1"], "kept": "yes", "x-death": [{"queue": "q"}]})
        sender.tell("wanted.1", b"[]", headers={"number": 2**62, "nested": {"a": [1, None, True]}})
        put_aside = await parked(runtimes, "oracle@alpha", 2)
        first, second = sorted(put_aside, key=lambda one: "kept" not in one.headers)
        assert first.headers["kept"] == "yes"
        assert not {"CC", "x-death"} & first.headers.keys()
        assert second.headers["nested"] == {"a": [1, None, True]}
        assert oracle.state.sessions == 1


async def test_the_memory_alarm_is_shown_and_sends_end_in_time(runtimes: Runtimes) -> None:
    async with runtimes.run(Oracle) as oracle, runtimes.run(Seeker, "beta") as seeker:
        await oracle.ready()
        await seeker.ready()
        await asyncio.to_thread(runtimes.broker.set_alarm, True)
        try:
            before = time.monotonic()
            with pytest.raises(SendUnknown, match="reads nothing from publishers"):
                await seeker.module.tell(Wanted(number=1), budget=2.0)
            with pytest.raises(Unanswered) as unanswered:
                await seeker.module.ask(Say(how=""), budget=0.5)
            assert unanswered.value.reasons == (Reason.TIME_OUT,)
            assert time.monotonic() - before < 8.0
            await until(lambda: seeker.state.snapshot()["degraded"], "the alarm is shown")
            (reason,) = seeker.state.snapshot()["degraded"]
            assert reason.startswith("broker: it reads nothing that is published here: low on memory")
            assert seeker.state.ready
        finally:
            await asyncio.to_thread(runtimes.broker.set_alarm, False)
        await until(lambda: not seeker.state.snapshot()["degraded"], "the alarm is over")
        assert isinstance(await seeker.module.ask(Say(how=""), budget=5), Found)


async def test_a_parked_queue_that_is_gone_is_shown_and_made_again(runtimes: Runtimes) -> None:
    """Somebody deleted it: what cannot be handled must not stay unsettled until the broker's own limit closes the channel."""
    async with runtimes.run(Oracle) as oracle, raw(runtimes, "seeker@raw", tells=("wanted.1",)) as sender:
        await oracle.ready()
        shown: list[str] = []
        oracle.state.listen(lambda state: shown.extend(state.snapshot()["degraded"]))
        await runtimes.management.delete_queue(runtimes.vhost, "parked.oracle@alpha")
        sender.tell("wanted.1", b"null")
        await until(lambda: oracle.state.sessions == 2, "the session was given up and climbed again", within=10)
        (put_aside,) = await parked(runtimes, "oracle@alpha", 1)
        assert str(put_aside.headers["mesh-park-reason"]).startswith("malformed")
        assert any(one.startswith("parking: ") for one in shown)
        assert oracle.state.snapshot()["degraded"] == []
