"""What an operator does about parked tells: sees each with its reason, has one handled again, lets one go. Nothing is lost by looking."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from mesh_runtime import Reason, Unanswered
from mesh_runtime.asking import Scope
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.parking import ParkedAct
from mesh_runtime.contracts.rights import DELIVERY_LIMIT, rights_of
from mesh_runtime.logging import register_secret
from mesh_runtime.runtime import manifest_of
from mesh_runtime.telling import Told
from mesh_runtime.testing.running import Running, Runtimes
from mesh_runtime.testing.waiting import until
from tests.asking.parts import OfTheHost, Operator, Oracle, Seeker, Wanted
from tests.raw import parked, raw
from tests.records import Records, said
from tests.telling.acting import ORACLE, act, refused, rows, shown


@pytest.mark.timeout(180)  # each look is some commands of a quorum queue
async def test_what_is_parked_is_listed_and_looking_takes_nothing(runtimes: Runtimes) -> None:
    """Each look counts as a delivery at the broker: more looks than the limit of other tells, and all is there."""
    async with (
        runtimes.run(Oracle) as oracle,
        runtimes.run(Operator, "desk") as operator,
        raw(runtimes, "seeker@raw", tells=("wanted.1", "of-the-host.1")) as sender,
    ):
        await oracle.ready()
        await operator.ready()
        assert (await shown(operator, "list")).rows == ()
        unreadable = sender.tell("wanted.1", b"[]")
        sender.tell("of-the-host.1", b'{"number": 1}', message_id="")
        listed = {row.type: row for row in await rows(operator, 2)}
        row = listed["wanted.1"]
        assert row.message_id == unreadable
        assert row.sender == "seeker@raw"
        assert row.reason.startswith("malformed: ")
        assert (row.count, row.size, row.put_by) == (1, 2, "")
        assert row.first <= row.last
        assert listed["of-the-host.1"].reason == "not-authorised: host tells of-the-host.1, not seeker@raw"
        assert listed["of-the-host.1"].message_id
        for _ in range(DELIVERY_LIMIT + 5):
            again = await shown(operator, "list")
            assert set(again.rows) == set(listed.values()), "looking at it changed it"
            assert again.more == 0
            assert again.by == ORACLE
        assert len(await parked(runtimes, ORACLE, 2)) == 2


async def test_a_replay_is_handled_as_told_by_its_sender_and_is_gone(runtimes: Runtimes, records: Records) -> None:
    async with runtimes.run(Oracle) as oracle, runtimes.run(Operator, "desk") as operator, runtimes.run(Seeker, "beta") as seeker:
        for one in (oracle, operator, seeker):
            await one.ready()
        message_id = await seeker.module.tell(Wanted(how="raise", number=5))
        await seeker.module.tell(Wanted(how="exit", number=6))
        mine, other = sorted(await rows(operator, 2), key=lambda row: row.message_id != message_id)
        assert mine.count == 4
        told_by: list[str] = []

        async def mended(tell: Wanted, scope: Scope) -> None:
            told_by.append(oracle.module.asked_by)
            oracle.module.kept.append(tell.number)

        oracle.life.parts.listener._told["wanted.1"] = _handled_by(oracle, mended)
        outcome = await shown(operator, "replay", mine.id)
        assert outcome.rows == (mine,)
        assert outcome.failed == ""
        assert oracle.module.kept == [5]
        assert told_by == ["seeker@beta"]
        assert (await rows(operator, 1)) == (other,)
        gone = await refused(operator, "replay", mine.id)
        assert gone.code == "no-such-tell"
        assert mine.id in gone.why
        (line,) = said(records, "a parked tell is replayed")
        assert (line["by"], line["told_by"], line["message_id"]) == ("operator@desk", "seeker@beta", message_id)
        assert oracle.state.counts["tells-replayed"] == 1
        assert oracle.state.sessions == 1


async def test_a_replay_that_fails_stays_parked_with_its_new_reason_and_the_same_id(runtimes: Runtimes) -> None:
    async with runtimes.run(Oracle) as oracle, runtimes.run(Operator, "desk") as operator, runtimes.run(Seeker, "beta") as seeker:
        for one in (oracle, operator, seeker):
            await one.ready()
        await seeker.module.tell(Wanted(how="raise", number=5))
        (before,) = await rows(operator, 1)

        async def worse(tell: Wanted, scope: Scope) -> None:
            raise LookupError("another reason")

        oracle.life.parts.listener._told["wanted.1"] = _handled_by(oracle, worse)
        for more in (1, 2):
            outcome = await shown(operator, "replay", before.id)
            assert outcome.failed == "raised: Oracle.want: LookupError: another reason"
            (after,) = await rows(operator, 1)
            assert (after.id, after.message_id, after.sender, after.first) == (before.id, before.message_id, "seeker@beta", before.first)
            assert (after.reason, after.count) == (outcome.failed, before.count + more)
            assert after.last > before.last
            assert outcome.rows[0].model_copy(update={"last": after.last}) == after
        (copy,) = await parked(runtimes, ORACLE, 1)
        assert json.loads(copy.body) == {"how": "raise", "number": 5}
        assert oracle.module.kept == []


async def test_a_replay_is_judged_as_the_first_time(runtimes: Runtimes) -> None:
    """That an operator asks for it gives a tell no right: who told it may not tell it now either."""
    async with (
        runtimes.run(Oracle) as oracle,
        runtimes.run(Operator, "desk") as operator,
        raw(runtimes, "seeker@raw", tells=("of-the-host.1", "wanted.1")) as sender,
    ):
        await oracle.ready()
        await operator.ready()
        forged = {wire.PARK_SENDER: "host@alpha", wire.PARK_COUNT: 7}
        sender.tell("of-the-host.1", b'{"number": 1}', headers=forged)
        sender.tell("of-the-host.1", b'{"number": 2}', headers=forged, user_id="")
        for row in await rows(operator, 2):
            assert row.sender in ("seeker@raw", "")
            outcome = await shown(operator, "replay", row.id)
            assert outcome.failed.startswith("not-authorised: host tells of-the-host.1")
        assert oracle.module.kept == []
        assert {row.count for row in await rows(operator, 2)} == {2}


async def test_a_tell_that_is_dropped_is_shown_once_more_and_is_gone(runtimes: Runtimes, records: Records) -> None:
    async with (
        runtimes.run(Oracle) as oracle,
        runtimes.run(Operator, "desk") as operator,
        raw(runtimes, "seeker@raw", tells=("wanted.1",)) as sender,
    ):
        await oracle.ready()
        await operator.ready()
        for number in range(5):
            sender.tell("wanted.1", f"[{number}]".encode())
        listed = await rows(operator, 5)
        dropped = await shown(operator, "drop", listed[3].id)
        assert dropped.rows == (listed[3],)
        assert set(await rows(operator, 4)) == set(listed) - {listed[3]}
        (line,) = said(records, "a parked tell is dropped")
        assert (line["by"], line["id"], line["told_by"]) == ("operator@desk", listed[3].id, "seeker@raw")
        for nothing in ("", "0" * 16, listed[3].id, listed[0].message_id):
            assert (await refused(operator, "drop", nothing)).code == "no-such-tell"
        assert oracle.state.counts["tells-dropped"] == 1
        assert len(await parked(runtimes, ORACLE, 4)) == 4


async def test_a_body_is_shown_bounded_and_without_secrets(runtimes: Runtimes) -> None:
    register_secret("tr0ub4dor&3-parked")
    async with (
        runtimes.run(Oracle) as oracle,
        runtimes.run(Operator, "desk") as operator,
        raw(runtimes, "seeker@raw", tells=("wanted.1",)) as sender,
    ):
        await oracle.ready()
        await operator.ready()
        edge = b"[" + b"x" * (64 * 1024 - 9) + b"tr0ub4dor&3-parked" + b"y" * 100
        bodies = {b'{"how": ["tr0ub4dor&3-parked"]}': 31, b"\xff\x1b[2J": 5, edge: len(edge), b"[" + b" " * 4_000_000: 4_000_001}
        for body in bodies:
            sender.tell("wanted.1", body, message_id=f"tr0ub4dor&3-parked {len(body)}")
        listed = {row.size: row for row in await rows(operator, len(bodies))}
        assert set(listed) == set(bodies.values())
        assert all("tr0ub4dor" not in row.model_dump_json() for row in listed.values())
        seen = {size: await shown(operator, "show", row.id) for size, row in listed.items()}
        assert (seen[31].body, seen[31].cut) == ('{"how": ["***"]}', False)
        assert (seen[5].body, seen[5].cut) == ("\ufffd\x1b[2J", False)
        assert seen[len(edge)].cut
        assert "tr0u" not in seen[len(edge)].body
        assert seen[4_000_001].cut
        assert len(seen[4_000_001].body) == 64 * 1024
        assert seen[31].rows == (listed[31],)


@pytest.mark.timeout(180)  # each look is some commands of a quorum queue
async def test_more_than_are_looked_at_are_counted(runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mesh_runtime.telling.unparking.MOST_LOOKED_AT", 40)
    async with (
        runtimes.run(Oracle) as oracle,
        runtimes.run(Operator, "desk") as operator,
        raw(runtimes, "seeker@raw", tells=("wanted.1",)) as sender,
    ):
        await oracle.ready()
        await operator.ready()
        for number in range(100):
            sender.tell("wanted.1", f"[{number}]".encode())
        await until(lambda: oracle.state.counts.get("tells-parked") == 100, "all are parked", within=20)
        seen = set()
        while True:
            listed = await shown(operator, "list")
            seen |= {row.id for row in listed.rows}
            if not listed.more:
                break
            assert len(listed.rows) == 40
            assert listed.more == 100 - len(seen)
            refusal = await refused(operator, "show", "0" * 16)
            assert "among the first 40" in refusal.why
            for row in listed.rows:
                await shown(operator, "drop", row.id)
        assert len(seen) == 100
        monkeypatch.setattr("mesh_runtime.telling.unparking.MOST_SHOWN", 1)
        assert [len((await shown(operator, "list")).rows), (await shown(operator, "list")).more] == [1, 19]


async def test_nobody_but_an_operator_acts_and_nobody_is_asked_in_anothers_place(runtimes: Runtimes) -> None:
    async with (
        runtimes.run(Oracle) as oracle,
        runtimes.run(Oracle, "beta") as other,
        runtimes.run(Operator, "desk") as operator,
        raw(runtimes, "seeker@raw", tells=("wanted.1",)) as thief,
    ):
        for one in (oracle, other, operator):
            await one.ready()
        with pytest.raises(Unanswered, match="may not publish"):
            await act(other, "list")
        with pytest.raises(Unanswered) as nobody:
            await act(operator, "list", of="seeker@nowhere")
        assert nobody.value.reasons == (Reason.NOBODY,)
        # Past the topic permission, by a key that it may write (RabbitMQ 3.10; 4.0 closes the channel for it):
        if not await _is_4(runtimes):
            me = str(thief.identity)
            headers = {"CC": [wire.ask_to_key("tool", ORACLE, wire.PARKED_ACT)]}
            thief.ask("quick.1", b'{"act": "list"}', type=wire.PARKED_ACT, headers=headers, user_id=me)
            await until(lambda: len(thief.replies) == 3, "what it was sent to has answered: two of quick.1, one by CC")
            assert all(b'"outcome":"refused"' in one.body for one in thief.replies)
            (reply,) = [one for one in thief.replies if b"only operator@MACHINE may ask parked-act.1, not seeker@raw" in one.body]
            assert reply.user_id == ORACLE


def test_rights_let_operators_ask_and_each_identity_listen_for_itself() -> None:
    mine = rights_of(Identity.parse("oracle@alpha"), manifest_of(Oracle, "1"))
    desk = rights_of(Identity.parse("operator@desk"), manifest_of(Operator, "1"))
    key = wire.ask_to_key("tool", ORACLE, ParkedAct.type_name())
    assert ParkedAct.type_name() == wire.PARKED_ACT
    assert desk.may_publish(wire.ASKS, key)
    assert not desk.may_publish(wire.ASKS, wire.ask_to_key("tool", ORACLE, "act.1"))
    assert not desk.may_publish(wire.ASKS, wire.ask_to_key("tool", "#", ParkedAct.type_name()))
    assert not mine.may_publish(wire.ASKS, key)
    read = mine.topics[wire.ASKS].read
    assert _lets(read, key)
    assert not _lets(read, wire.ask_to_key("tool", "oracle@beta", ParkedAct.type_name()))
    assert not _lets(read, wire.ask_to_key("tool", "*", ParkedAct.type_name()))
    assert not _lets(
        rights_of(Identity.parse("seeker@alpha"), manifest_of(Seeker, "1")).topics[wire.ASKS].read, "tool.seeker@alpha.parked-act.1"
    )


async def test_the_host_is_told_by_the_host_alone_after_a_replay_too(runtimes: Runtimes) -> None:
    """The login of who told it is kept through the parked queue: what the host told is handled as the host's."""
    async with (
        runtimes.run(Oracle) as oracle,
        runtimes.run(Operator, "desk") as operator,
        raw(runtimes, "host@alpha", tells=("of-the-host.1",)) as host,
    ):
        await oracle.ready()
        await operator.ready()
        handled = oracle.life.parts.listener._told.pop(OfTheHost.type_name())
        host.tell("of-the-host.1", b'{"number": 4}')
        (row,) = await rows(operator, 1)
        assert row.reason == "not-handled: nobody here is told 'of-the-host.1'"
        oracle.life.parts.listener._told[OfTheHost.type_name()] = handled
        await shown(operator, "replay", row.id)
        assert oracle.module.kept == [4]
        assert (await shown(operator, "list")).rows == ()


async def test_one_act_at_a_time_and_nothing_is_replayed_twice_at_once(runtimes: Runtimes) -> None:
    async with runtimes.run(Oracle) as oracle, runtimes.run(Operator, "desk") as operator, runtimes.run(Seeker, "beta") as seeker:
        for one in (oracle, operator, seeker):
            await one.ready()
        handled = oracle.life.parts.listener._told.pop("wanted.1")
        await seeker.module.tell(Wanted(how="hold", number=1))
        (row,) = await rows(operator, 1)
        oracle.life.parts.listener._told["wanted.1"] = handled
        first = asyncio.create_task(shown(operator, "replay", row.id))
        await oracle.module.held.wait()
        busy = await refused(operator, "replay", row.id, budget=4.0)
        assert (busy.code, busy.again) == ("busy", True)
        assert f"replay {row.id} by operator@desk" in busy.why
        second = asyncio.create_task(act(operator, "replay", row.id))
        oracle.module.go.set()
        await first
        outcome = await second
        assert outcome.outcome == "refused"
        assert oracle.module.seen == ["hold 1"]
        assert oracle.module.kept == [1]


async def test_a_replay_that_takes_too_long_is_cut_and_stays(runtimes: Runtimes) -> None:
    async with runtimes.run(Oracle) as oracle, runtimes.run(Operator, "desk") as operator, runtimes.run(Seeker, "beta") as seeker:
        for one in (oracle, operator, seeker):
            await one.ready()
        handled = oracle.life.parts.listener._told.pop("wanted.1")
        await seeker.module.tell(Wanted(how="never", number=1))
        (row,) = await rows(operator, 1)
        oracle.life.parts.listener._told["wanted.1"] = handled
        outcome = await shown(operator, "replay", row.id, budget=2.0)
        held = re.fullmatch(r"time-out: Oracle\.want held its tell for more than (\d\.\d+) s.*", outcome.failed)
        assert held, outcome.failed
        assert 0.3 < float(held[1]) < 1.4  # of two seconds seven tenths, less what looking for it took
        (after,) = await rows(operator, 1)
        assert (after.id, after.reason, after.count) == (row.id, outcome.failed, 2)


def _handled_by(oracle: Running, handle: Callable[[Wanted, Scope], Awaitable[None]]) -> Told:
    return replace(oracle.life.parts.listener._told["wanted.1"], handle=handle)


def _lets(pattern: str, key: str) -> bool:
    return re.search(pattern, key) is not None


async def _is_4(runtimes: Runtimes) -> bool:
    overview = await runtimes.management._send("GET", "overview")
    return str(overview["rabbitmq_version"]).startswith("4.")
