"""The link is cut in each phase of a grant's way, at either side: afterwards one login works, it is confirmed, and nothing is left open."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mesh_runtime import Unanswered
from mesh_runtime.testing.responder import MakeResponder
from mesh_runtime.testing.running import Running, Runtimes
from mesh_runtime.testing.waiting import until
from tests.grants.parts import StandInServer
from tests.grants.runtimes.parts import Customer, MakerRuntime, Pool, Row, Shop, controller, done
from tests.records import Records, said

#: A step of the server, or of the consumer's method, at which one side hangs when it is cut. The issuer is cut at each of its awaits in
#: the tests of issuing; here both sides are whole runtimes.
ISSUE = ["make: made", "trial"]
ROTATE = ["make: made", "trial", "close", "retire"]


def cut(one: Running) -> None:
    session = one.life.parts.asker._session
    if session is not None:
        session.abort("cut by the test")


async def one_login_works(runtimes: Runtimes, shop: Running, server: StandInServer) -> None:
    """Wait for it: ready, the login in force works and is confirmed, every other is gone, every other pool is closed."""

    async def holds() -> bool:
        if not shop.state.ready or len(server.accounts) != 1:
            return False
        pool = shop.module.pool
        open_pools = [one for one in Pool.opened if not one.closed]
        if open_pools != [pool] or pool.user not in server.accounts:
            return False
        try:
            rows = (await done(runtimes, "list", "", None)).rows
        except Unanswered:  # the issuer is still climbing
            return False
        return [(row.sequence, row.state, bool(row.confirmed)) for row in rows] == [(pool.use(), "confirmed", True)]

    await until(holds, "one login works, is confirmed, and nothing else is there", within=20, every=0.25)


async def reached(server: StandInServer, step: str, before: int, act: Callable[[], Awaitable[object]]) -> None:
    """Do something in the background until it hangs at this step once more than ``before``."""
    doing = asyncio.ensure_future(act())
    try:
        await until(lambda: server.steps.count(step) > before, f"it is at {step}", within=15)
    finally:
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("side", ["consumer", "issuer"])
@pytest.mark.parametrize("step", ISSUE)
async def test_a_cut_while_it_is_issued(runtimes: Runtimes, responder: MakeResponder, server: StandInServer, step: str, side: str) -> None:
    async with controller(responder), runtimes.run(MakerRuntime) as maker:
        await maker.ready()
        server.hanging.add(step)
        async with runtimes.run(Shop) as shop:
            await until(lambda: step in server.steps, f"it is at {step}", within=15)
            cut(shop if side == "consumer" else maker)
            server.hanging.clear()
            await shop.ready(within=30)
            await one_login_works(runtimes, shop, server)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("side", ["consumer", "issuer"])
@pytest.mark.parametrize("step", ROTATE)
async def test_a_cut_while_it_is_rotated(runtimes: Runtimes, responder: MakeResponder, server: StandInServer, step: str, side: str) -> None:
    async with controller(responder), runtimes.run(MakerRuntime) as maker, runtimes.run(Shop) as shop:
        await maker.ready()
        await shop.ready(within=20)
        await one_login_works(runtimes, shop, server)
        before = server.steps.count(step)
        server.hanging.add(step)
        await reached(server, step, before, lambda: done(runtimes, "rotate"))
        cut(shop if side == "consumer" else maker)
        server.hanging.clear()
        await until(lambda: maker.state.sessions + shop.state.sessions >= 3, "it climbs again", within=20)
        await one_login_works(runtimes, shop, server)
        assert shop.module.pool.use() in (1, 2, 3)


async def test_a_cut_while_handlers_hold_the_old_one_loses_no_row(
    runtimes: Runtimes, responder: MakeResponder, server: StandInServer, records: Records
) -> None:
    async with (
        controller(responder),
        runtimes.run(MakerRuntime) as maker,
        runtimes.run(Shop) as shop,
        runtimes.run(Customer, "beta") as customer,
    ):
        await maker.ready()
        await shop.ready(within=20)
        await customer.ready()
        for number in range(5):
            await customer.module.tell(Row(number=number, hold=True))
        await until(lambda: shop.module.held == 5, "they are at work")
        await done(runtimes, "rotate")
        await until(lambda: shop.module.pool.sequence == 2, "the second is in force", within=10)
        cut(shop)
        await until(lambda: shop.module.held == 10, "the tells came again", within=15)
        shop.module.go.set()
        await until(lambda: len(shop.module.rows) == 5, "all rows are written", within=10)
        assert {one.last for one in shop.module.rows.values()} == {2}
        await one_login_works(runtimes, shop, server)
        assert not said(records, "a tell is parked")
