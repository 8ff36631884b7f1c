"""A mesh has one issuer of a type of resource: a second one waits, and names both."""

import pytest

from mesh_runtime.broker import open_session
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.granting import ask_for
from mesh_runtime.grants.issuing import Issuer
from mesh_runtime.testing.responder import MakeResponder
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from tests.grants.parts import ONE, StandInServer, Thing
from tests.grants.runtimes.parts import MakerRuntime, Shop, controller, done, stands_at
from tests.raw import broker_at, raw
from tests.records import Records, said


async def test_two_provisioners_of_one_resource_are_both_named_and_the_second_follows_the_first(
    runtimes: Runtimes, responder: MakeResponder, server: StandInServer
) -> None:
    async with controller(responder), runtimes.run(MakerRuntime) as first:
        await first.ready()
        async with runtimes.run(MakerRuntime, "beta") as second:
            words = await stands_at(second, "waiting", "other-issuer")
            assert words == "maker@beta does not issue thing.1: maker@alpha does, and a mesh has one issuer of a type of resource"
            assert second.state.snapshot()["on"] == "maker@alpha"
            assert first.state.ready
            async with runtimes.run(Shop) as shop:
                await shop.ready(within=20)
                assert server.steps.count("make") == 1
            assert await first.ended() == 0
            await second.ready(within=20)


async def test_a_holder_that_does_not_say_who_it_is_is_waited_for(
    runtimes: Runtimes, server: StandInServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a session of its own is that was lost, and that the broker still believes in."""
    monkeypatch.setattr("mesh_runtime.runtime.wiring.NAMED_WITHIN", 0.3)
    settings = await runtimes.settings(MakerRuntime, "alpha")
    assert settings.machine == "alpha"
    lost = await open_session(broker_at(runtimes, "maker@alpha"), "maker@alpha")
    await lost.declare_queue(wire.provides_queue("thing.1"), exclusive=True)
    try:
        async with runtimes.run(MakerRuntime) as maker:
            words = await stands_at(maker, "waiting", "other-issuer")
            assert "provides.thing.1 is held by a session that does not say whose it is" in words
            assert maker.state.snapshot()["on"] == "provides.thing.1"
            lost.abort("gone")
            await maker.ready()
    finally:
        await lost.close()


async def test_its_queue_is_held_as_long_as_it_is_ready_and_goes_with_its_session(runtimes: Runtimes, server: StandInServer) -> None:
    async def held() -> bool:
        return any(one["name"] == "provides.thing.1" for one in await runtimes.management.queues(runtimes.vhost))

    async with runtimes.run(MakerRuntime) as maker:
        await maker.ready()
        await until(held, "it is held", every=0.2)
        session = maker.life.parts.asker._session
        assert session is not None
        session.abort("cut by the test")
        await until(lambda: maker.state.sessions == 2, "it is ready again, and not kept out by its own lost session", within=15)

    async def gone() -> bool:
        return not await held()

    await until(gone, "it is gone", every=0.2)


async def test_an_operators_act_is_answered(runtimes: Runtimes, server: StandInServer) -> None:
    async with runtimes.run(MakerRuntime) as maker:
        await maker.ready()
        shown = await done(runtimes, "list", "", None)
        assert (shown.rows, shown.orphans) == ((), ())


async def test_an_ask_for_a_grant_is_judged_by_the_login_that_the_broker_validated(
    runtimes: Runtimes, responder: MakeResponder, server: StandInServer
) -> None:
    async with controller(responder), runtimes.run(MakerRuntime) as maker, raw(runtimes, "thief@alpha") as thief:
        await maker.ready()
        body = ask_for(Thing)(resource=ONE, key="ab" * 32).model_dump_json().encode()
        number = thief.ask("thing.1", body, level="provision")
        await until(lambda: thief.reply_of(number), "it is answered")
        reply = thief.reply_of(number)
        assert reply is not None
        assert b'"code":"not-needed"' in reply.body
        assert b"thief@alpha is not placed" in reply.body
        assert "make" not in server.steps


async def test_sweeps_begin_once_it_is_ready_and_their_failure_is_shown_and_mended(
    runtimes: Runtimes, server: StandInServer, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, runs = Issuer.run, [0]

    async def run(self: Issuer) -> None:
        runs[0] += 1
        if runs[0] == 1:
            raise RuntimeError("injected")
        await plain(self)

    monkeypatch.setattr(Issuer, "run", run)
    async with runtimes.run(MakerRuntime) as maker:
        assert runs == [0]
        await maker.ready()
        await until(lambda: any("the sweeps of grants ended" in one for one in maker.state.snapshot()["degraded"]), "it is shown")
        assert said(records, "the sweeps of grants ended and begin again", level="error")
        await until(lambda: "logins" in server.steps and not maker.state.snapshot()["degraded"], "it sweeps again")
