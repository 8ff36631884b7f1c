"""A rotated grant is entered beside the one in force; nothing fails meanwhile, and the old one is left when no handler uses it."""

import asyncio
from typing import Any

from mesh_runtime import Found
from mesh_runtime.testing.responder import MakeResponder
from mesh_runtime.testing.running import Running, Runtimes
from mesh_runtime.testing.waiting import until
from tests.grants.parts import StandInServer
from tests.grants.runtimes.parts import Customer, MakerRuntime, Pool, Row, Shop, Use, UseInThread, controller, done
from tests.grants.runtimes.stating import StatingIssuer, issuing
from tests.records import Records, said


def sequences(issuer: StatingIssuer) -> list[int]:
    return [one.sequence for one in issuer.confirmed]


async def in_force(shop: Running, sequence: int) -> None:
    await until(lambda: shop.module.pool.sequence == sequence, f"{sequence} is in force", within=10)


async def test_b60_a_rotation_under_load_fails_nothing_and_the_old_login_ends_only_then(
    runtimes: Runtimes, responder: MakeResponder, server: StandInServer
) -> None:
    """B60: old and new overlap until no handler uses the old one; none of the handlers fails, and exactly one login is left.

    Removal: mesh_runtime/grants/held.py: await oldest.free()
    Assertion: long_ones_ended_as_they_began
    """
    async with (
        controller(responder),
        runtimes.run(MakerRuntime) as maker,
        runtimes.run(Shop) as shop,
        runtimes.run(Customer, "beta") as customer,
    ):
        for one in (maker, shop, customer):
            await one.ready(within=20)
        asking: list[asyncio.Task[Any]] = []
        for number in range(3):  # long ones, which begin with the old login
            await customer.module.tell(Row(number=number, hold=True))
            asking.append(asyncio.create_task(customer.module.ask(Use(hold=True), budget=60)))
            asking.append(asyncio.create_task(customer.module.ask(UseInThread(hold=True), budget=60)))
        await until(lambda: shop.module.held == 9, "the long ones are at work", within=20)
        stop = asyncio.Event()

        async def load() -> int:
            sent = 100
            while not stop.is_set():
                await customer.module.tell(Row(number=sent))
                assert isinstance(await customer.module.ask(Use(), budget=20), Found)
                sent += 1
            return sent

        loading = asyncio.create_task(load())
        await until(lambda: len(shop.module.rows) > 5, "there is load")
        await done(runtimes, "rotate")
        await in_force(shop, 2)
        more = len(shop.module.rows) + 20
        await until(lambda: len(shop.module.rows) > more, "the load goes on with the new one", within=20)
        old = next(pool for pool in Pool.opened if pool.sequence == 1)
        left_early = old.closed
        shop.module.go.set()
        ended = await asyncio.gather(*asking, return_exceptions=True)
        await until(lambda: {0, 1, 2} <= shop.module.rows.keys(), "the long tells have ended", within=10)
        long_ones_ended_as_they_began = not left_early and all(
            isinstance(one, Found) and (one.value.first, one.value.last) == (1, 1) for one in ended
        )
        assert long_ones_ended_as_they_began
        assert all(shop.module.rows[number].last == 1 for number in range(3))
        await until(lambda: old.closed, "the old one is left")
        await until(lambda: len(server.accounts) == 1, "the old login ends", within=10)
        stop.set()
        sent = await loading
        await until(lambda: len(shop.module.rows) == 3 + sent - 100, "no row is lost", within=10)
        assert shop.module.doubled == 0
        assert shop.state.counts.get("handlers-raised", 0) == 0
        assert shop.module.pool.use() == 2


async def test_two_rotations_in_a_row_are_confirmed_once_nothing_older_is_used(runtimes: Runtimes, server: StandInServer) -> None:
    async with issuing(runtimes) as issuer, runtimes.run(Shop) as shop, runtimes.run(Customer, "beta") as customer:
        await shop.ready()
        await customer.ready()
        await customer.module.tell(Row(number=1, hold=True))
        await until(lambda: shop.module.held == 1, "a handler holds the first")
        issuer.tell(issuer.rotated(2))
        await in_force(shop, 2)
        await customer.module.tell(Row(number=2, hold=True))
        await until(lambda: shop.module.held == 2, "a handler holds the second")
        issuer.tell(issuer.rotated(3))
        await in_force(shop, 3)
        assert sequences(issuer) == [1]
        assert [pool.closed for pool in Pool.opened] == [False, False, False]
        shop.module.go.set()
        await until(lambda: sequences(issuer) == [1, 3], "the last one is confirmed, and it alone")
        assert [pool.closed for pool in Pool.opened] == [True, True, False]
        assert (shop.module.rows[1].last, shop.module.rows[2].last) == (1, 2)


async def test_a_rotation_that_is_told_twice_is_confirmed_twice_and_entered_once(runtimes: Runtimes, server: StandInServer) -> None:
    async with issuing(runtimes) as issuer, runtimes.run(Shop) as shop:
        await shop.ready()
        tell = issuer.rotated(2)
        issuer.tell(tell)
        issuer.tell(tell)
        await until(lambda: sequences(issuer) == [1, 2, 2], "both are confirmed")
        assert len(Pool.opened) == 2


async def test_an_older_one_after_a_newer_one_changes_nothing(runtimes: Runtimes, server: StandInServer, records: Records) -> None:
    async with issuing(runtimes) as issuer, runtimes.run(Shop) as shop:
        await shop.ready()
        older = issuer.rotated(2)
        issuer.tell(issuer.rotated(3))
        await until(lambda: sequences(issuer) == [1, 3], "the newer one is confirmed")
        issuer.tell(older)
        await until(lambda: said(records, "an older grant than the one in force was told", sequence=2), "it is said")
        assert shop.module.pool.sequence == 3
        assert sequences(issuer) == [1, 3]


async def test_one_that_cannot_be_entered_leaves_the_one_in_force_untouched_and_is_parked_at_last(
    runtimes: Runtimes, server: StandInServer, records: Records
) -> None:
    async with issuing(runtimes) as issuer, runtimes.run(Shop) as shop:
        await shop.ready()
        server.failing["trial"] = ConnectionRefusedError("not this one")
        issuer.tell(issuer.rotated(2))
        await until(lambda: said(records, "a tell is parked"), "it is parked", within=15)
        (parked,) = said(records, "a tell is parked")
        assert "thing.1/one, entering Shop.pool raised ConnectionRefusedError: not this one" in parked["reason"]
        assert shop.state.ready
        assert shop.module.pool.use() == 1
        assert [pool.closed for pool in Pool.opened] == [False, True, True, True, True]
        del server.failing["trial"]
        issuer.tell(issuer.rotated(2))
        await in_force(shop, 2)
        await until(lambda: sequences(issuer) == [1, 2], "told again, it is confirmed")


async def test_one_that_cannot_be_opened_is_parked_at_last(runtimes: Runtimes, server: StandInServer, records: Records) -> None:
    async with issuing(runtimes) as issuer, runtimes.run(Shop) as shop:
        await shop.ready()
        issuer.tell(issuer.rotated(2).model_copy(update={"sequence": 3}))  # sealed for number 2
        await until(lambda: said(records, "a tell is parked"), "it is parked", within=15)
        (parked,) = said(records, "a tell is parked")
        assert "thing.1/one, number 3 of maker@alpha, was not sealed for this" in parked["reason"]
        assert shop.module.pool.use() == 1
        assert sequences(issuer) == [1]


async def test_an_old_one_whose_leaving_raises_or_hangs_is_left_all_the_same(
    runtimes: Runtimes, server: StandInServer, records: Records, monkeypatch: Any
) -> None:
    monkeypatch.setattr("mesh_runtime.grants.entering.LEAVE_WITHIN", 0.5)
    async with issuing(runtimes) as issuer, runtimes.run(Shop) as shop:
        await shop.ready()
        server.failing["close"] = OSError("it does not close")
        issuer.tell(issuer.rotated(2))
        await until(lambda: sequences(issuer) == [1, 2], "it is confirmed")
        (record,) = said(records, "a grant's context raised")
        assert (record["grant"], record["sequence"]) == ("Shop.pool", 1)
        server.failing.clear()
        server.hanging.add("close")
        issuer.tell(issuer.rotated(3))
        await until(lambda: sequences(issuer) == [1, 2, 3], "it is confirmed", within=10)
        assert said(records, "a grant's context does not end and is cut", sequence=2)
        server.hanging.clear()
        for pool in Pool.opened[:2]:  # what raises or hangs in its own closing is not closed: that is its author's
            pool.closed = True


async def test_a_key_that_was_replaced_meanwhile_does_not_keep_a_rotation_out(runtimes: Runtimes, server: StandInServer) -> None:
    async with issuing(runtimes) as issuer, runtimes.run(Shop) as shop:
        await shop.ready()
        path = runtimes.key_file(shop.module.identity)
        path.unlink()
        issuer.tell(issuer.rotated(2))  # sealed to the key with which the first was asked for
        await until(lambda: sequences(issuer) == [1, 2], "it is entered and confirmed")
