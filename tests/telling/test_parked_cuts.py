"""Acts on parked tells that are cut, repeated, or meet what is not theirs: at each moment a tell stands in at least one place."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, get_args

import pytest

from mesh_runtime import Unanswered
from mesh_runtime.broker import ConfirmedChannel, Getter, NotRouted, OutcomeUnknown, Properties, Session, open_session
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.parking import ParkedDeed, ParkedTell
from mesh_runtime.telling import unparking
from mesh_runtime.telling.parking import park
from mesh_runtime.testing.gate import Gate
from mesh_runtime.testing.running import Running, Runtimes
from mesh_runtime.testing.waiting import until
from tests.asking.parts import Operator, Oracle, Wanted
from tests.raw import broker_at, parked, raw
from tests.telling.acting import ORACLE, act, refused, rows, shown


@asynccontextmanager
async def parked_behind_a_gate(runtimes: Runtimes, bodies: list[bytes]) -> AsyncIterator[tuple[Running, Running, Gate]]:
    """An oracle whose link a test can cut, with these tells parked, and an operator whose link stands."""
    async with (
        Gate(runtimes.broker.ports.amqps) as gate,
        runtimes.run(Operator, "desk") as operator,
        raw(runtimes, "seeker@raw", tells=("wanted.1",)) as sender,
    ):
        await operator.ready()
        runtimes.port = gate.port
        async with runtimes.run(Oracle) as oracle:
            await oracle.ready()
            handled = oracle.life.parts.listener._told.pop("wanted.1")
            for body in bodies:
                sender.tell("wanted.1", body)
            await until(lambda: oracle.state.counts.get("tells-parked", 0) == len(bodies), "all are parked", within=10)
            await rows(operator, len(bodies))
            oracle.life.parts.listener._told["wanted.1"] = handled
            yield oracle, operator, gate


async def in_the_next_session(oracle: Running, session: int) -> None:
    await until(lambda: oracle.state.sessions == session and oracle.state.ready, "a new session stands", within=10)


DEEDS: tuple[ParkedDeed, ...] = get_args(ParkedDeed)

#: All that an act asks of the broker, in its own words: at each of these calls it is cut once.
CALLS: tuple[tuple[type, str], ...] = (
    (Session, "consumer_count"),
    (Session, "getter"),
    (Getter, "get"),
    (Getter, "nack"),
    (Getter, "ack"),
    (Getter, "forget"),
    (ConfirmedChannel, "publish"),
)


class Cutter:
    """Cuts the link right before, or right after, the call of this number of those that a runtime makes of the broker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
        self.gate = gate
        self.calls: list[str] = []
        self.at, self.after = 0, False
        for owner, name in CALLS:
            monkeypatch.setattr(owner, name, self.watching(name, getattr(owner, name)))

    def watching(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        async def awaited(*args: Any, **how: Any) -> Any:
            await self.cut(name, self.at and not self.after, args)
            result = await original(*args, **how)
            await self.cut("", self.at and self.after, args)
            return result

        def called(*args: Any, **how: Any) -> Any:
            if self.at:
                self.calls.append(name)
                if len(self.calls) == self.at:
                    self.gate.cut()
            return original(*args, **how)

        return awaited if inspect.iscoroutinefunction(original) else called

    async def cut(self, name: str, here: object, args: tuple[Any, ...]) -> None:
        if self.at and name:
            self.calls.append(name)
        if here and len(self.calls) == self.at:
            self.gate.cut()
            one = args[0]
            await until(lambda: one.closed if isinstance(one, Session) else one.over is not None, "the link is cut")


#: Acts, and one on a tell whose handler fails.
DEED_OF: dict[str, ParkedDeed] = {"list": "list", "drop": "drop", "replay": "replay", "replay in vain": "replay"}


def ended_or_cut(acting: "asyncio.Task[Any]", oracle: Running, sessions: int) -> bool:
    return acting.done() or oracle.state.sessions > sessions


@pytest.mark.timeout(120)  # it is cut some dozen times, and climbs again each time
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("deed", DEED_OF)
async def test_an_act_that_is_cut_at_any_call_loses_nothing(
    runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch, deed: str, after: bool
) -> None:
    """Cut at each call in its turn: the two others are always there, and the one that it is about unless it was handled or dropped."""
    how = "raise" if deed == "replay in vain" else "keep"
    bodies = [b'{"how": "%b", "number": %d}' % (how.encode(), number) for number in range(3)]
    async with parked_behind_a_gate(runtimes, bodies) as (oracle, operator, gate):
        cutter = Cutter(monkeypatch, gate)
        done, cuts = False, 0
        before = {row.id for row in await rows(operator, 3)}
        wanted = sorted(before)[1]
        while not done:
            cuts += 1
            cutter.calls, cutter.at, cutter.after = [], cuts, after
            acting = asyncio.create_task(act(operator, DEED_OF[deed], "" if deed == "list" else wanted))
            await until(partial(ended_or_cut, acting, oracle, cuts), "it was cut, or came to its end", within=10)
            done = len(cutter.calls) < cuts
            cutter.at = 0
            if not done:
                acting.cancel()
                await in_the_next_session(oracle, cuts + 1)
            left = [row.id for row in (await shown(operator, "list")).rows]
            assert set(left) >= before - {wanted}
            if wanted not in left:
                assert deed == "drop" or (deed == "replay" and oracle.module.kept), f"it is lost by a cut at {cutter.calls}"
                wanted = (before & set(left)).pop() if before & set(left) else ""
                before &= set(left)
            await asyncio.wait([acting])
            if not wanted:
                break
        assert cuts > 4, cutter.calls


async def test_a_replay_that_is_cut_while_its_handler_runs_is_parked_still(runtimes: Runtimes) -> None:
    async with parked_behind_a_gate(runtimes, [b'{"how": "hold", "number": 1}']) as (oracle, operator, gate):
        (row,) = await rows(operator, 1)
        replay = asyncio.create_task(act(operator, "replay", row.id, budget=1.5))
        await oracle.module.held.wait()
        gate.cut()
        with pytest.raises(Unanswered):
            await replay
        await in_the_next_session(oracle, 2)
        assert await rows(operator, 1) == (row,)
        oracle.module.go.set()
        await shown(operator, "replay", row.id)
        assert oracle.module.kept == [1]


async def test_a_cut_between_the_new_copy_and_the_old_leaves_two_of_one_id(runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch) -> None:
    async with parked_behind_a_gate(runtimes, [b'{"how": "raise", "number": 1}']) as (oracle, operator, gate):
        (before,) = await rows(operator, 1)

        async def parked_then_cut(*args: Any) -> None:
            await park(*args)
            gate.cut()
            await until(lambda: args[0].over is not None, "the link is cut")

        monkeypatch.setattr(unparking, "park", parked_then_cut)
        with pytest.raises(Unanswered):
            await act(operator, "replay", before.id, budget=1.5)
        monkeypatch.setattr(unparking, "park", park)
        await in_the_next_session(oracle, 2)
        old, new = await rows(operator, 2)
        assert old == before
        assert (new.id, new.count) == (before.id, before.count + 1)
        assert new.reason.startswith("raised: Oracle.want: RuntimeError")
        await shown(operator, "drop", before.id)
        (left,) = await rows(operator, 1)
        assert left in (old, new)


@pytest.mark.parametrize("fault", [NotRouted("no queue"), OutcomeUnknown("no confirmation within 10 s")], ids=["not routed", "unknown"])
async def test_a_reason_that_cannot_be_written_leaves_the_old_one(
    runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    async with parked_behind_a_gate(runtimes, [b'{"how": "raise", "number": 1}']) as (_, operator, __):
        before = await rows(operator, 1)

        async def failing(*args: Any) -> None:
            raise fault

        monkeypatch.setattr(unparking, "park", failing)
        outcome = await shown(operator, "replay", before[0].id)
        assert outcome.failed == "raised: Oracle.want: RuntimeError: as it was told to"
        assert outcome.rows == before
        assert await rows(operator, 1) == before


async def test_what_another_session_holds_is_waited_for_and_never_taken_for_absent(
    runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that was cut may hold what it fetched until the broker sees that it is gone: until then the list is not known.

    Removal: mesh_runtime/telling/unparking.py: raise _NotDone(Refused(code="held", why=words, again=True))
    Assertion: assert outcome.outcome == "refused"
    """
    async with parked_behind_a_gate(runtimes, [b"[1]", b"[2]", b"[3]"]) as (_, operator, __):
        before = await rows(operator, 3)
        monkeypatch.setattr(unparking, "FREE_WITHIN", 0.5)
        session = await open_session(broker_at(runtimes, ORACLE), ORACLE)
        try:
            getter = await session.getter()
            held = await getter.get(wire.parked_queue(ORACLE))
            assert held is not None
            for deed in DEEDS:
                outcome = await act(operator, deed, before[1].id)
                assert outcome.outcome == "refused", f"{deed} did not see all that is parked"
                assert (outcome.code, outcome.again) == ("held", True)
        finally:
            await session.close()
        monkeypatch.setattr(unparking, "FREE_WITHIN", 5.0)
        assert await rows(operator, 3) == before


async def test_what_is_not_confirmed_as_settled_is_said_so(runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch) -> None:
    async with parked_behind_a_gate(runtimes, [b'{"number": 1}', b'{"number": 2}']) as (oracle, operator, _):
        before = await rows(operator, 2)
        free = unparking.Unparking._free
        looks = 0

        async def never_free(self: unparking.Unparking, session: Any) -> bool:
            nonlocal looks
            looks += 1
            return looks % 2 == 1 and await free(self, session)

        monkeypatch.setattr(unparking.Unparking, "_free", never_free)
        settling: dict[ParkedDeed, ParkedTell] = {"drop": before[0], "replay": before[1]}
        for deed, row in settling.items():
            refusal = await refused(operator, deed, row.id)
            assert refusal.code == "unsettled"
            assert refusal.why.startswith("it was told to drop it" if deed == "drop" else "it was handled")
        monkeypatch.setattr(unparking.Unparking, "_free", free)
        assert (await shown(operator, "list")).rows == ()
        assert len(oracle.module.kept) == 1


async def test_what_another_has_put_there_is_shown_as_foreign_and_only_dropped(runtimes: Runtimes) -> None:
    """By a key of its own and a ``CC`` on RabbitMQ 3.10; by the broker's own hand; without a mark; with headers that cannot be read."""
    async with parked_behind_a_gate(runtimes, [b'{"number": 1}']) as (oracle, operator, _):
        (sound,) = await rows(operator, 1)
        key = wire.parked_key(ORACLE)
        marks = {wire.PARK_SENDER: "host@alpha", wire.PARK_REASON: "forged", wire.PARK_COUNT: 3}
        body = b'{"number": 9}'

        async with raw(runtimes, ORACLE) as mine:
            # Each confirmed: a quorum queue may lose what came unconfirmed over a channel that is closed right behind it.
            line = await mine.session.confirmed()
            for message_id, login, headers in (
                ("unmarked", ORACLE, {}),
                ("number", ORACLE, {wire.PARK_SENDER: 7}),
                ("nameless", "", marks),
                ("strange", ORACLE, {**marks, wire.PARK_COUNT: "many", wire.PARK_FIRST: 2}),
            ):
                told = Properties(type="of-the-host.1", message_id=message_id, user_id=login, headers=headers, persistent=True)
                await line.publish(wire.TELLS, key, body, told, timeout=5)
        listed = {row.message_id: row for row in await rows(operator, 5)}
        assert listed[sound.message_id] == sound
        assert {name: listed[name].put_by for name in ("unmarked", "number", "nameless", "strange")} == {
            "unmarked": ORACLE,
            "number": ORACLE,
            "nameless": "a login that the broker did not validate",
            "strange": "",
        }
        assert (listed["nameless"].sender, listed["nameless"].reason) == ("", "")
        assert (listed["strange"].count, listed["strange"].first, listed["strange"].sender) == (0, "", "host@alpha")
        for name in ("unmarked", "number", "nameless"):
            refusal = await refused(operator, "replay", listed[name].id)
            assert refusal.code == "foreign"
            assert (await shown(operator, "show", listed[name].id)).body == body.decode()
            await shown(operator, "drop", listed[name].id)
        assert oracle.module.kept == []
        assert {row.message_id for row in await rows(operator, 2)} == {sound.message_id, "strange"}


async def test_no_other_login_puts_a_tell_there_that_is_handled(runtimes: Runtimes) -> None:
    """RabbitMQ 3.10 lets ``CC`` past the topic permissions: what comes so names its writer, and is refused."""
    async with parked_behind_a_gate(runtimes, [b'{"number": 1}']) as (oracle, operator, _):
        async with raw(runtimes, "thief@beta", tells=("wanted.1",)) as thief:
            headers = {"CC": [wire.parked_key(ORACLE)], wire.PARK_SENDER: "host@alpha"}
            thief.tell("wanted.1", b'{"number": 66}', headers=headers, type="of-the-host.1")
            await until(lambda: oracle.state.counts["tells-parked"] == 2 or thief.session.closed, "it is refused here or there")
        listed = [row for row in (await shown(operator, "list")).rows if row.type == "of-the-host.1"]
        for row in listed:
            if row.put_by:
                assert row.put_by == "thief@beta"
                assert (await refused(operator, "replay", row.id)).code == "foreign"
            else:
                assert row.sender == "thief@beta"
                assert (await shown(operator, "replay", row.id)).failed.startswith("not-authorised")
        assert oracle.module.kept == []


async def test_a_parked_queue_that_is_gone_is_said_and_costs_no_session(runtimes: Runtimes) -> None:
    async with parked_behind_a_gate(runtimes, []) as (oracle, operator, _):
        await runtimes.management.delete_queue(runtimes.vhost, wire.parked_queue(ORACLE))
        refusal = await refused(operator, "list")
        assert (refusal.code, refusal.again) == ("not-readable", True)
        assert oracle.state.sessions == 1


async def test_a_runtime_that_stops_gives_back_what_it_replays(runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mesh_runtime.runtime.life.STOP_WITHIN", 0.2)
    async with parked_behind_a_gate(runtimes, [b'{"how": "hold", "number": 1}']) as (oracle, operator, _):
        (row,) = await rows(operator, 1)
        replay = asyncio.create_task(act(operator, "replay", row.id, budget=5.0))
        await oracle.module.held.wait()
        await oracle.ended()
        with pytest.raises(Unanswered, match="stopping"):
            await replay
        (copy,) = await parked(runtimes, ORACLE, 1)
        assert copy.message_id == row.message_id
        assert copy.headers[wire.PARK_COUNT] == 1


def test_the_tell_that_these_tests_park_is_one_that_is_handled() -> None:
    assert Wanted.type_name() == "wanted.1"
