"""The stage ``grants``: what is not granted yet is waited for, in words; what is granted is entered, and confirmed."""

import pytest

from mesh_runtime import NotGranted
from mesh_runtime.testing.responder import MakeResponder
from mesh_runtime.testing.running import Running, Runtimes
from mesh_runtime.testing.waiting import until
from tests.grants.parts import StandInServer
from tests.grants.runtimes.parts import MakerRuntime, Shop, controller, done


async def at(one: Running, state: str, code: str, within: float = 10.0) -> str:
    """Wait until it stands at ``grants`` in this state with this code; the cause's words."""
    await until(lambda: (one.state.state, one.state.cause and one.state.cause.code) == (state, code), f"{state} {code}", within=within)
    assert str(one.state.stage) == "grants"
    assert one.state.cause is not None
    return one.state.cause.text


async def confirmed(runtimes: Runtimes) -> list[tuple[int, bool]]:
    """The logins that the issuer shows, and whether each is confirmed."""
    return [(row.sequence, bool(row.confirmed)) for row in (await done(runtimes, "list", "", None)).rows]


async def test_nobody_provides_it_and_then_somebody_does(runtimes: Runtimes, responder: MakeResponder, server: StandInServer) -> None:
    async with controller(responder), runtimes.run(Shop) as shop:
        words = await at(shop, "waiting", "nobody-provides", within=5)
        assert "thing.1/one is provided by the module 'maker'" in words
        assert shop.state.snapshot()["on"] == "maker"
        with pytest.raises(NotGranted, match=r"Shop\.pool \(thing\.1/one\) cannot be read: it is not granted yet"):
            _ = shop.module.pool
        async with runtimes.run(MakerRuntime) as maker:
            await maker.ready()
            await shop.ready(within=20)
            assert shop.module.pool.use() == 1
            await until(lambda: confirmed_now(runtimes), "it is confirmed")


async def confirmed_now(runtimes: Runtimes) -> bool:
    return await confirmed(runtimes) == [(1, True)]
