"""Stopping in order: no new work, finish or hand back, settle, close. And one runtime an identity."""

import asyncio

import pytest

from mesh_runtime import Found, Unanswered
from mesh_runtime.runtime.wiring import Wiring
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from tests.asking.parts import Oracle, Quick, Say, Seeker, Wanted
from tests.raw import raw


async def test_what_is_under_way_is_finished_and_what_comes_late_is_refused_as_stopping(runtimes: Runtimes) -> None:
    async with runtimes.run(Seeker, "beta") as seeker, raw(runtimes, "seeker@raw") as sender:
        async with runtimes.run(Oracle) as oracle:
            await oracle.ready()
            await seeker.ready()
            asked = asyncio.create_task(seeker.module.ask(Say(how="hold"), budget=20))
            await oracle.module.held.wait()
            oracle.module.held.clear()
            await seeker.module.tell(Wanted(how="hold", number=1))
            await oracle.module.held.wait()
            stopping = asyncio.create_task(oracle.ended())
            answerer = oracle.life.parts.answerer
            await until(lambda: answerer._stopping, "it has unbound")
            assert oracle.state.state == "draining"
            with pytest.raises(Unanswered, match="nobody listens"):
                await seeker.module.ask(Quick(), budget=5)
            session = oracle.life.parts.asker._session
            assert session is not None
            # As if the broker had routed it before the unbinding: bound again, by the only connection that may.
            await session.bind(f"asks.oracle@alpha.{session.id}.lookup", "mesh.asks", "lookup.quick.1")
            late = sender.ask("quick.1", b"{}")
            await until(lambda: sender.reply_of(late), "the late ask is answered")
            reply = sender.reply_of(late)
            assert reply is not None
            assert b'"code":"stopping"' in reply.body
            assert not stopping.done()
            oracle.module.go.set()
            assert isinstance(await asked, Found)
            assert await stopping == 0
            assert oracle.module.kept == [1]

        async def nothing_is_left() -> bool:
            return bool((await runtimes.management.queue(runtimes.vhost, "tells.oracle@alpha")).get("messages") == 0)

        await until(nothing_is_left, "its tell is acknowledged", within=10)


async def test_what_does_not_end_is_cut_short_and_handed_back(runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mesh_runtime.runtime.life.STOP_WITHIN", 0.5)
    async with runtimes.run(Seeker, "beta") as seeker:
        async with runtimes.run(Oracle) as oracle:
            await oracle.ready()
            await seeker.ready()
            asked = asyncio.create_task(seeker.module.ask(Say(how="never"), budget=20))
            asked.add_done_callback(lambda task: task.exception())
            await seeker.module.tell(Wanted(how="never", number=1))
            await until(lambda: len(oracle.module.seen) == 2, "both are at work")
            async with asyncio.timeout(5):
                assert await oracle.ended() == 0
            with pytest.raises(Unanswered, match="stopping: oracle@alpha is stopping"):
                await asked
        async with runtimes.run(Oracle) as again:
            await until(lambda: again.module.seen == ["never 1"], "the tell came back", within=10)


async def test_a_second_runtime_of_one_identity_waits_and_takes_nothing(runtimes: Runtimes) -> None:
    async with runtimes.run(Seeker, "beta") as seeker, runtimes.run(Oracle) as first:
        await first.ready()
        await seeker.ready()
        second_login = await runtimes.settings(Oracle, "alpha")  # the same identity: its password is made anew
        assert second_login.machine == "alpha"
        async with runtimes.run(Oracle) as second:
            await until(lambda: second.state.cause is not None and second.state.cause.code == "other-consumer", "it waits", within=10)
            assert str(second.state.stage) == "proof"
            assert second.state.state == "waiting"
            assert "second runtime of oracle@alpha" in second.state.snapshot()["cause"]["text"]
            for number in range(20):
                await seeker.module.tell(Wanted(number=number))
            await until(lambda: len(first.module.kept) == 20, "the first handles all")
            assert second.module.kept == []
            assert first.state.ready
            assert await first.ended() == 0
            await second.ready(within=15)
            await seeker.module.tell(Wanted(number=99))
            await until(lambda: second.module.kept == [99], "now the second handles")


async def test_a_runtime_that_stops_while_it_climbs_climbs_no_further(runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tell holds up its end, and meanwhile the stage at which the stop came is done: it must not become routable now."""
    proved, go_on = asyncio.Event(), asyncio.Event()
    plain = Wiring.prove

    async def prove(self: Wiring) -> None:
        await plain(self)
        proved.set()
        await go_on.wait()

    async with runtimes.run(Seeker, "beta") as seeker:
        async with runtimes.run(Oracle) as oracle:
            await oracle.ready()
            await seeker.ready()
            assert await oracle.ended() == 0
        await seeker.module.tell(Wanted(how="hold", number=1))
        monkeypatch.setattr(Wiring, "prove", prove)
        monkeypatch.setattr("mesh_runtime.runtime.life.STOP_WITHIN", 60.0)  # so that it is not cut while it is told
        async with runtimes.run(Oracle) as oracle:
            await oracle.module.held.wait()
            await proved.wait()
            stopping = asyncio.create_task(oracle.ended(within=30))
            await until(lambda: oracle.state.draining, "it is told to stop")
            go_on.set()
            for _ in range(20):  # a climb that goes on binds in two round trips; each of these is one
                await seeker.module.tell(Wanted(number=2))
            with pytest.raises(Unanswered, match="nobody listens"):
                await seeker.module.ask(Quick(), budget=5)
            assert not oracle.state.snapshot()["ready"]
            oracle.module.go.set()
            assert await stopping == 0
            assert 1 in oracle.module.kept
