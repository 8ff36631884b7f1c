"""Grants that end: by revocation, by a context that ends by itself, by the end of the process; and that begin anew, by another key."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mesh_runtime import ModuleRuntime, NotGranted, granted
from mesh_runtime.contracts.granting import GrantRevoked
from mesh_runtime.contracts.outcomes import Refused
from mesh_runtime.testing.responder import MakeResponder
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.stating import Failing
from mesh_runtime.testing.waiting import until
from mesh_runtime.trust.sealing import PrivateKey
from tests.grants.parts import ONE, StandInServer, ThingAccess
from tests.grants.runtimes.parts import Customer, MakerRuntime, Pool, Row, Shop, controller, done, stands_at
from tests.grants.runtimes.stating import issuing, sealed
from tests.records import Records, said

REVOKED = GrantRevoked(resource=ONE.text, sequence=1, why="by the test")


async def test_a_revoked_grant_is_left_and_blocks_with_the_issuers_words_until_a_rekey(
    runtimes: Runtimes, responder: MakeResponder, server: StandInServer
) -> None:
    async with controller(responder), runtimes.run(MakerRuntime) as maker, runtimes.run(Shop) as shop:
        await maker.ready()
        await shop.ready(within=20)
        await done(runtimes, "revoke")
        words = await stands_at(shop, "blocked", "revoked")
        assert words.startswith(
            "thing.1/one is refused by maker@alpha: the grant of thing.1/one for shop@alpha was revoked by operator@desk"
        )
        assert [pool.closed for pool in Pool.opened] == [True]
        assert server.accounts == {}
        assert not shop.state.ready
        with pytest.raises(NotGranted, match=r"the grant of thing\.1/one was revoked by maker@alpha"):
            _ = shop.module.pool
        await done(runtimes, "rekey", resource=None)
        await shop.ready(within=20)  # a blocked stage is tried at a slow pace
        assert shop.module.pool.use() == 2


async def test_another_key_is_refused_by_name_until_a_rekey_and_gets_a_new_login_then(
    runtimes: Runtimes, responder: MakeResponder, server: StandInServer
) -> None:
    async with controller(responder), runtimes.run(MakerRuntime) as maker:
        await maker.ready()
        async with runtimes.run(Shop) as shop:
            await shop.ready(within=20)
            first = PrivateKey.load(runtimes.key_file(shop.module.identity)).public_key
        owners = dict(server.owners)
        another = runtimes.directory / "another.pem"
        PrivateKey.generate().save(another)
        async with runtimes.run(Shop, key_file=another) as shop:
            words = await stands_at(shop, "blocked", "other-key")
            assert str(first) in words
            assert str(PrivateKey.load(another).public_key) in words
            assert "mesh rekey shop@alpha" in words
            assert list(server.accounts) == [Pool.opened[0].user]
            await done(runtimes, "rekey", resource=None)
            await shop.ready(within=20)
            assert shop.module.pool.use() == 2
            await until(lambda: len(server.accounts) == 1, "the login of the first key ends", within=10)
            assert server.owners == owners


async def test_a_revocation_of_an_older_one_changes_nothing(runtimes: Runtimes, server: StandInServer, records: Records) -> None:
    async with issuing(runtimes, lambda ask: sealed(ask, sequence=2)) as issuer, runtimes.run(Shop) as shop:
        await shop.ready()
        issuer.tell(REVOKED)
        await until(lambda: said(records, "a grant was issued after the one that is revoked", revoked=1), "it is said")
        assert shop.state.ready
        assert shop.module.pool.use() == 2
        assert shop.state.sessions == 1


async def test_a_revocation_is_taken_from_the_queue_before_the_stages_are_climbed_again(runtimes: Runtimes, server: StandInServer) -> None:
    """Else it would come again, and again, whenever the grant was given anew."""
    async with issuing(runtimes) as issuer, runtimes.run(Shop) as shop:
        await shop.ready()
        await issuer.say(Refused(code="revoked", why="by the test"))
        issuer.tell(REVOKED)
        await stands_at(shop, "blocked", "revoked")

        async def count() -> int:
            return int((await runtimes.management.queue(runtimes.vhost, "tells.shop@alpha")).get("messages", 0))

        async def empty() -> bool:
            return await count() == 0

        await until(empty, "the queue is empty", within=10, every=0.3)


async def test_handlers_at_work_when_it_is_revoked_are_ended_and_their_tells_come_again(runtimes: Runtimes, server: StandInServer) -> None:
    async with issuing(runtimes) as issuer, runtimes.run(Shop) as shop, runtimes.run(Customer, "beta") as customer:
        await shop.ready()
        await customer.ready()
        await customer.module.tell(Row(number=1, hold=True))
        await until(lambda: shop.module.held == 1, "it is at work")
        await issuer.say(Refused(code="revoked", why="by the test"))
        issuer.tell(REVOKED)
        await stands_at(shop, "blocked", "revoked")
        shop.module.go.set()
        assert shop.module.rows == {}
        async with runtimes.run(Shop) as again:
            assert await shop.ended() == 0
            await issuer.say(lambda ask: sealed(ask, sequence=2))
            await until(lambda: again.module.held == 1, "the tell came again", within=25)
            again.module.go.set()
            await until(lambda: again.module.rows[1].last == 2 if again.module.rows else False, "it is handled")


async def test_a_context_that_ends_by_itself_is_entered_anew(runtimes: Runtimes, server: StandInServer, records: Records) -> None:
    class Fragile(ModuleRuntime):
        """Its context has a part that can die."""

        module = "shop"

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.dies = asyncio.Event()

        async def _part(self) -> None:
            await self.dies.wait()
            raise ConnectionResetError("injected: the pool is gone")

        @granted(ONE)
        async def pool(self, access: ThingAccess) -> AsyncIterator[Pool]:
            pool = Pool(access)
            with contextlib.suppress(GeneratorExit):
                try:
                    async with asyncio.TaskGroup() as group:  # which is bound to the task that opened it
                        part = group.create_task(self._part())
                        yield pool
                        part.cancel()
                finally:
                    pool.closed = True

    async with issuing(runtimes), runtimes.run(Fragile) as shop:
        await shop.ready()
        shop.module.dies.set()
        await until(lambda: not shop.state.ready, "it is not ready")
        shop.module.dies.clear()
        await until(lambda: shop.state.ready, "it is ready again", within=10)
        assert shop.module.pool is Pool.opened[1]
        assert said(records, "a grant's context ended by itself", grant="Fragile.pool", sequence=1)
        assert shop.state.last_loss == "Fragile.pool ended by itself"


# ---------------------------------------------------------------------------------------------------- stopping


async def test_a_revoked_one_that_is_slow_to_leave_has_no_tell_parked(runtimes: Runtimes, server: StandInServer, records: Records) -> None:
    async with issuing(runtimes) as issuer, runtimes.run(Shop) as shop, runtimes.run(Customer, "beta") as customer:
        await shop.ready()
        await customer.ready()
        server.hanging.add("close")
        await issuer.say(Refused(code="revoked", why="by the test"))
        await asyncio.gather(*(customer.module.tell(Row(number=number, hold=True)) for number in range(20)))
        await until(lambda: shop.module.held == 20, "they are at work")
        issuer.tell(REVOKED)
        await until(lambda: not shop.state.ready, "it has ended")
        shop.module.go.set()
        await until(lambda: "close" in server.steps, "it is left")
        server.hanging.clear()
        await stands_at(shop, "blocked", "revoked")
        assert shop.module.rows == {}
        assert not said(records, "a tell is parked")
        assert not said(records, "a handler of tells raised")
        row = await runtimes.management.queue(runtimes.vhost, "tells.shop@alpha")
        assert row["type"] == "quorum"


@pytest.mark.parametrize("phase", ["asking", "entering", "confirming", "in force", "rotating", "waiting for the old"])
async def test_it_stops_within_bounds_whatever_it_is_at_and_leaves_nothing_open(
    runtimes: Runtimes, server: StandInServer, phase: str
) -> None:
    stated: Any = Failing.NEVER if phase == "asking" else sealed
    async with issuing(runtimes, stated) as issuer, runtimes.run(Customer, "beta") as customer:
        await customer.ready()
        if phase == "entering":
            server.hanging.add("trial")
        if phase == "confirming":
            await issuer.responder.session.unbind("tells.maker@alpha", "mesh.tells", "to.maker@alpha.grant-confirmed.1")
        async with runtimes.run(Shop) as shop:
            match phase:
                case "asking":
                    await until(lambda: issuer.asked, "it has asked", within=10)
                case "entering":
                    await until(lambda: Pool.opened, "it enters", within=10)
                case "confirming":
                    await stands_at(shop, "waiting", "not-confirmed")
                case "in force":
                    await shop.ready()
                case "rotating":
                    await shop.ready()
                    server.hanging.add("trial")
                    issuer.tell(issuer.rotated(2))
                    await until(lambda: len(Pool.opened) == 2, "it enters the second")
                case "waiting for the old":
                    await shop.ready()
                    await customer.module.tell(Row(number=1, hold=True))
                    await until(lambda: shop.module.held == 1, "a handler holds the first")
                    issuer.tell(issuer.rotated(2))
                    await until(lambda: shop.module.pool.sequence == 2, "the second is in force")
            limit = 11.5 if phase in ("rotating", "waiting for the old") else 5.0  # work under way is given its time, which is 7 s
            started = asyncio.get_running_loop().time()
            assert await shop.ended(within=15) == 0
            took = asyncio.get_running_loop().time() - started
            assert took < limit, f"{phase}: {took:.2f} s"
        assert all(pool.closed for pool in Pool.opened)
        assert not [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("grant ")]


async def test_a_context_that_does_not_end_holds_up_the_end_for_a_bounded_time(
    runtimes: Runtimes, server: StandInServer, records: Records
) -> None:
    class Stubborn(Shop):
        module = "shop"

        async def close(self, pool: Pool) -> None:
            for _ in range(2):
                with contextlib.suppress(asyncio.CancelledError):
                    await release.wait()

    release = asyncio.Event()
    async with issuing(runtimes), runtimes.run(Stubborn) as shop:
        await shop.ready()
        started = asyncio.get_running_loop().time()
        assert await shop.ended(within=12) == 0
        assert asyncio.get_running_loop().time() - started < 7
        assert said(records, "a grant's context does not end and is cut")
        release.set()
        await until(lambda: all(pool.closed for pool in Pool.opened), "it ends in the end")
