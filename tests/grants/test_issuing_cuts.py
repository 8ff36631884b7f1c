"""Every operation of an issuer is ended at each of its awaits in turn, and asked again of a new one: what is left is always in order.

The awaits are counted from outside (``cutting``), so no place can be forgotten. Ended by a kill the issuer is another one afterwards; by a
cancellation it is the same.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mesh_runtime.contracts.granting import Granted, GrantRevoked, GrantRotated
from mesh_runtime.grants.issuing import Issuer
from mesh_runtime.grants.sqlite import SqliteLedger
from mesh_runtime.grants.sweeping import Swept
from tests.grants.cutting import Killed, each_cut
from tests.grants.parts import ONE, OPERATOR, ORDERS, HonestConsumer, Mesh, act, code_of, granted, key, shown

#: Least number of awaits that each operation has: fewer would mean that the cuts miss most of it.
LEAST = 6


@dataclass
class World:
    """One mesh of its own for each cut, brought to where the operation begins."""

    mesh: Mesh
    orders: HonestConsumer
    issuer: Issuer

    async def everything_is_recorded(self) -> None:
        """No login can work that stands in no record, at no moment."""
        recorded = {login.login for record in await SqliteLedger(self.mesh.file).all() for login in record.logins}
        assert set(self.mesh.server.accounts) <= recorded

    async def comes_to_rest(self, issuer: Issuer) -> None:
        """The consumer asks, enters and confirms; one sweep: exactly one login, which works, and nothing else is left."""
        answer = await self.orders.start(issuer)
        assert isinstance(answer, Granted), answer
        swept = await issuer.sweep()
        assert (swept.orphans, swept.failed) == ((), ())
        assert len(self.mesh.server.logins_of(ONE.text, ORDERS)) == len(self.mesh.server.accounts) == 1
        assert self.orders.works
        assert list((await self.mesh.states()).values()) == ["confirmed"]
        assert await issuer.sweep() == Swept()


async def nothing(world: World) -> None:
    """The operation begins in a mesh where nothing was asked yet."""


async def in_use(world: World) -> None:
    await granted(world.orders.start(world.issuer))


async def drawn_in_vain(world: World) -> None:
    world.mesh.server.failing["make: made"] = OSError("cut off")
    await world.orders.ask(world.issuer)
    world.mesh.server.failing.clear()


async def rotated(world: World) -> None:
    await in_use(world)
    await shown(world.issuer.act(act("rotate", ORDERS, ONE), OPERATOR))
    world.orders.enter(world.orders.rotated())


async def confirmed_anew(world: World) -> None:
    await rotated(world)
    await world.orders.confirm(world.issuer)


async def gone(world: World) -> None:
    await in_use(world)
    world.mesh.server.accounts.clear()


async def rekeyed(world: World) -> None:
    await in_use(world)
    await shown(world.issuer.act(act("rekey", ORDERS), OPERATOR))
    world.orders.private = key("another")


async def ask(world: World) -> object:
    return await world.orders.ask(world.issuer)


async def rotate(world: World) -> object:
    return await world.issuer.act(act("rotate", ORDERS, ONE), OPERATOR)


async def confirm(world: World) -> None:
    await world.orders.confirm(world.issuer)


async def rekey(world: World) -> object:
    return await world.issuer.act(act("rekey", ORDERS), OPERATOR)


async def sweep(world: World) -> object:
    return await world.issuer.sweep()


_numbers = itertools.count()

Step = Callable[[World], Coroutine[Any, Any, object]]

OPERATIONS: dict[str, tuple[Step, Step]] = {
    "a first ask": (nothing, ask),
    "an ask after a draw in vain": (drawn_in_vain, ask),
    "an ask after a rekey": (rekeyed, ask),
    "a rotation": (in_use, rotate),
    "a confirmation": (rotated, confirm),
    "a rekey": (in_use, rekey),
    "a sweep that ends an older login": (confirmed_anew, sweep),
    "a sweep that ends a draw": (drawn_in_vain, sweep),
    "a sweep that replaces": (gone, sweep),
}


async def begin(directory: Path, prepare: Step) -> World:
    """A new world in which ``prepare`` has happened."""
    mesh = Mesh(directory / f"{next(_numbers)}.sqlite")
    mesh.entitle(ORDERS)
    world = World(mesh, HonestConsumer(mesh), mesh.issuer())
    await prepare(world)
    return world


@pytest.mark.parametrize("by", [Killed, asyncio.CancelledError])
@pytest.mark.parametrize("name", OPERATIONS)
async def test_cut_anywhere_and_asked_again_there_is_one_working_login(tmp_path: Path, name: str, by: type[BaseException]) -> None:
    prepare, operation = OPERATIONS[name]
    worlds: list[World] = []

    async def one() -> Coroutine[Any, Any, object]:
        worlds.append(await begin(tmp_path, prepare))
        return operation(worlds[-1])

    cuts = 0
    async for cuts in each_cut(one, by):
        world = worlds[-1]
        await world.everything_is_recorded()
        used = world.orders.works
        issuer = world.mesh.issuer() if by is Killed else world.issuer
        if cuts % 2 or prepare is gone:  # elsewhere, in every second world, the consumer is quicker than the sweep
            await issuer.sweep()
        assert world.orders.works >= used, "a sweep ended a login in use"
        await world.comes_to_rest(issuer)
    assert cuts >= LEAST, f"only {cuts} cuts: what is cut there?"


@pytest.mark.parametrize("by", [Killed, asyncio.CancelledError])
async def test_a_revocation_cut_anywhere_and_asked_again_leaves_no_login(tmp_path: Path, by: type[BaseException]) -> None:
    worlds: list[World] = []

    async def one() -> Coroutine[Any, Any, object]:
        worlds.append(await begin(tmp_path, rotated))
        return worlds[-1].issuer.act(act("revoke", ORDERS, ONE), OPERATOR)

    cuts = begun = 0
    async for cuts in each_cut(one, by):  # noqa: B007
        world = worlds[-1]
        await world.everything_is_recorded()
        issuer = world.mesh.issuer() if by is Killed else world.issuer
        if (await world.mesh.record()).revoked:
            begun += 1
            await issuer.sweep()
            assert world.mesh.server.accounts == {}, "one sweep has not ended what was revoked"
            assert world.mesh.of_consumer(GrantRevoked), "the consumer was not told"
        await shown(issuer.act(act("revoke", ORDERS, ONE), OPERATOR))
        assert world.mesh.server.accounts == {}
        assert code_of(await world.orders.ask(issuer)) == "revoked"
        await issuer.sweep()
        assert await issuer.sweep() == Swept()
    assert 0 < begun < cuts
    assert cuts >= LEAST


@pytest.mark.parametrize("by", [Killed, asyncio.CancelledError])
async def test_the_end_with_a_placement_cut_anywhere_is_done_by_the_next_sweep(tmp_path: Path, by: type[BaseException]) -> None:
    worlds: list[World] = []

    async def one() -> Coroutine[Any, Any, object]:
        worlds.append(await begin(tmp_path, rotated))
        worlds[-1].mesh.terms.clear()
        return worlds[-1].issuer.sweep()

    cuts = 0
    async for cuts in each_cut(one, by):  # noqa: B007
        world = worlds[-1]
        await world.everything_is_recorded()
        issuer = world.mesh.issuer() if by is Killed else world.issuer
        swept = await issuer.sweep()
        assert (world.mesh.server.accounts, swept.orphans) == ({}, ())
        assert code_of(await world.orders.ask(issuer)) == "not-needed"
        world.mesh.entitle(ORDERS)
        await world.comes_to_rest(issuer)
    assert cuts >= LEAST


async def test_b60_cut_at_each_step_of_a_rotation_the_consumer_works_without_a_gap(tmp_path: Path) -> None:
    """B60: before the record, after it, after the server was changed, after the answer was recorded, before the confirmation.

    Removal: mesh_runtime/grants/sweeping.py: await self._retire(record, sweep)
    Assertion: list((await self.mesh.states()).values()) == ["confirmed"]
    """
    worlds: list[World] = []

    async def one() -> Coroutine[Any, Any, object]:
        worlds.append(await begin(tmp_path, in_use))
        return whole(worlds[-1])

    async def whole(world: World) -> None:
        await rotate(world)
        world.orders.enter(world.orders.rotated())
        await world.orders.confirm(world.issuer)
        await world.issuer.sweep()

    cuts = 0
    async for cuts in each_cut(one):  # noqa: B007
        world = worlds[-1]
        assert world.orders.works, "the consumer cannot log in: a gap"
        await world.everything_is_recorded()
        issuer = world.mesh.issuer()
        await issuer.sweep()
        assert world.orders.works, "the consumer cannot log in after the sweep: a gap"
        for tell in world.mesh.of_consumer(GrantRotated):
            assert isinstance(tell, GrantRotated)
            if tell.sequence in await world.mesh.states():
                world.orders.enter(tell)
        await world.comes_to_rest(issuer)
    assert cuts > 30
