"""Who is entitled to a grant, who provides: facts of inventory and catalog, and an end that has effect only once it was pushed."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy.exc import SQLAlchemyError

from mesh_runtime import NotSent
from mesh_runtime.contracts import Absent, BadName, Found, Refused
from mesh_runtime.contracts.granting import GrantTerms, Provider, Providers
from mesh_runtime.contracts.operating import Placed
from mesh_runtime_controller.entitling import LostHistory, UnknownManifest

if TYPE_CHECKING:
    from conftest import Desk

DATABASE = Provider(identity="database@alpha", type="database.1")


@pytest.fixture
def orders(desk: "Desk") -> "Desk":
    desk.granting("orders", needs=("database.1/orders",))
    desk.granting("database", provides=("database.1",))
    return desk


async def is_entitled(desk: "Desk", consumer: str = "orders@alpha") -> bool:
    return isinstance(await desk.terms(consumer), Found)


async def providers(desk: "Desk") -> tuple[Provider, ...]:
    return (await desk.controller.providers(Providers())).value


# ---------------------------------------------------------------------------------------------------- terms


async def test_who_is_placed_and_needs_it_is_entitled(orders: "Desk") -> None:
    await orders.place("orders")
    assert await orders.terms("orders@alpha") == Found[GrantTerms](value=GrantTerms(key=""), revision=2)


async def test_who_is_not_placed_or_does_not_need_it_is_not(orders: "Desk") -> None:
    await orders.place("orders")
    for consumer, resource in [
        ("orders@beta", "database.1/orders"),
        ("orders@gamma", "database.1/orders"),
        ("orders@alpha", "database.1/others"),
        ("orders@alpha", "database.2/orders"),
        ("operator@alpha", "database.1/orders"),
        ("unheard-of@alpha", "database.1/orders"),
    ]:
        assert await orders.terms(consumer, resource) == Absent(revision=2), (consumer, resource)


async def test_a_manifest_that_cannot_be_read_now_is_not_absent(orders: "Desk") -> None:
    """Held by: ``UnknownManifest`` in ``read_terms``."""
    await orders.place("orders")
    del orders.manifests["orders"]
    with pytest.raises(UnknownManifest, match="orders@alpha is placed: no module 'orders' is installed"):
        await orders.terms("orders@alpha")


async def test_an_inventory_that_cannot_be_read_is_not_absent(orders: "Desk") -> None:
    await orders.place("orders")
    async with orders.controller.store.write() as connection:
        await connection.exec_driver_sql("ALTER TABLE placements RENAME TO elsewhere")
    with pytest.raises(SQLAlchemyError):
        await orders.terms("orders@alpha")
    with pytest.raises(BadName):
        await orders.terms("orders")


async def test_an_inventory_that_has_lost_history_does_not_say_who_is_not_placed(orders: "Desk") -> None:
    """A backup from before the placement was made, and a machine that knows better.

    Removal: modules/controller/mesh_runtime_controller/entitling.py: raise LostHistory("; ".join(ahead))
    Assertion: assert await answered(orders) == ["placed"]
    """
    await orders.place("orders")
    assert await answered(orders) == ["placed", "not placed", "providers"]
    host = orders.hosts["beta"]
    host.epoch, host.generation = 1, 7
    await host.say("standing")
    assert await answered(orders) == ["placed"]
    async with orders.controller.store.write() as connection:
        await connection.exec_driver_sql("DELETE FROM placements")
    assert await answered(orders) == []


async def answered(desk: "Desk") -> list[str]:
    """Which questions have an answer."""
    asks = {"placed": desk.terms("orders@alpha"), "not placed": desk.terms("orders@beta"), "providers": providers(desk)}
    outcomes = dict(zip(asks, await asyncio.gather(*asks.values(), return_exceptions=True), strict=True))
    lost = [str(one) for one in outcomes.values() if isinstance(one, LostHistory)]
    assert all("beta reports generation 7" in words for words in lost)
    return [name for name, one in outcomes.items() if not isinstance(one, LostHistory)]


async def test_what_the_founding_placed_is_placed(orders: "Desk") -> None:
    for founded in ("host", "controller"):
        orders.granting(founded, needs=("database.1/orders",))
    entitled = {one: await is_entitled(orders, one) for one in ("host@alpha", "host@beta", "host@gamma")}
    assert entitled == {"host@alpha": True, "host@beta": True, "host@gamma": False}
    assert (await is_entitled(orders, "controller@alpha"), await is_entitled(orders, "controller@beta")) == (True, False)


# ---------------------------------------------------------------------------------------------------- an end takes effect by a push


async def test_a_removal_that_was_not_pushed_keeps_its_grant(orders: "Desk") -> None:
    """
    Removal: modules/controller/mesh_runtime_controller/pushing.py: await mark_pushed(self.store, machine, composed.view.mesh.revision)
    Assertion: assert await orders.terms("orders@alpha") == Absent(revision=3)
    """
    await orders.place("orders")
    await orders.remove("orders")
    assert await is_entitled(orders)
    assert (await orders.push())["alpha"].verdict == "unchanged"
    assert await orders.terms("orders@alpha") == Absent(revision=3)


async def test_a_push_of_another_machine_ends_nothing_here(orders: "Desk", write: Any) -> None:
    orders.module("motd", write.composed(write.files("/etc/motd")))
    await orders.place("motd", "beta")
    await orders.place("orders")
    await orders.remove("orders")
    assert (await orders.push("beta"))["beta"].verdict == "in-force"
    assert await is_entitled(orders)


async def test_an_end_that_came_after_the_push_had_composed_is_not_in_effect(orders: "Desk", write: Any) -> None:
    """The push records the revision that it composed from, not the one at which it ended."""
    orders.module("motd", write.composed(write.files("/etc/motd")))
    await orders.place("motd")
    await orders.place("orders")
    host, declared = orders.hosts["alpha"], orders.hosts["alpha"].declared

    async def declared_after_a_removal(signed: Any) -> None:
        await orders.remove("orders")
        await declared(signed)

    host.declared = declared_after_a_removal  # type: ignore[method-assign]
    assert (await orders.push("alpha"))["alpha"].verdict == "in-force"
    host.declared = declared  # type: ignore[method-assign]
    assert await is_entitled(orders)
    assert (await orders.push("alpha"))["alpha"].verdict == "unchanged"
    assert not await is_entitled(orders)


@pytest.mark.parametrize("how", ["refused", "failed", "unheard", "not-sent"])
async def test_a_push_that_did_not_come_to_pass_ends_nothing(orders: "Desk", write: Any, how: str) -> None:
    """Held by: the verdict that is asked for before ``mark_pushed``."""
    answer: list[Any] = [write.composed(write.files("/etc/motd"))]
    orders.module("motd", lambda machine: answer[0])
    await orders.place("motd")
    await orders.place("orders")
    await orders.remove("orders")
    host = orders.hosts["alpha"]
    match how:
        case "refused":
            answer[0] = Refused(code="no", why="no")
        case "failed":
            host.failing = {"files/motd/etc/motd": "No space left on device"}
        case "unheard":
            host.silent = True
        case "not-sent":
            orders.controller.undelivered["alpha"] = NotSent("the broker is away")
    verdict = (await orders.push("alpha", patience=0.05))["alpha"].verdict
    assert verdict == ("failed" if how == "not-sent" else how)
    assert await is_entitled(orders)


async def test_placed_again_before_the_push_it_never_ended(orders: "Desk") -> None:
    await orders.place("orders")
    await orders.remove("orders")
    await orders.place("orders", size="large")
    assert (await orders.push_refused()).code == "nothing-to-do"
    assert await is_entitled(orders)


async def test_an_end_has_effect_once_and_then_there_is_nothing_to_push(orders: "Desk") -> None:
    await orders.place("orders")
    assert (await orders.push_refused()).code == "nothing-to-do"
    await orders.remove("orders")
    (planned,) = (await orders.plan()).machines
    assert (planned.machine, planned.changes, planned.ends, planned.refused) == ("alpha", (), ("orders@alpha",), None)
    assert (await orders.push("alpha"))["alpha"].verdict == "unchanged"
    assert not orders.hosts["alpha"].taken, "there was nothing to tell the host"
    assert (await orders.push_refused()).code == "nothing-to-do"


async def test_the_end_on_a_machine_whose_host_was_never_heard_waits_for_it(unprepared: "Desk") -> None:
    unprepared.granting("orders", needs=("database.1/orders",))
    await unprepared.controller.prepare()
    await unprepared.place("orders")
    await unprepared.remove("orders")
    assert (await unprepared.push("alpha"))["alpha"].verdict == "unheard"
    assert await is_entitled(unprepared)


# ---------------------------------------------------------------------------------------------------- providers


async def test_providers_are_all_placements_that_provide_something(orders: "Desk") -> None:
    orders.granting("cache", provides=("cache.1", "lock.1"))
    assert await providers(orders) == ()
    await orders.place("orders")
    await orders.place("database")
    await orders.place("cache", "beta")
    cache = [Provider(identity="cache@beta", type=kind) for kind in ("cache.1", "lock.1")]
    assert await providers(orders) == (cache[0], DATABASE, cache[1])


async def test_a_provider_that_was_removed_is_one_until_the_push(orders: "Desk") -> None:
    await orders.place("database")
    await orders.remove("database")
    assert await providers(orders) == (DATABASE,)
    await orders.push()
    assert await providers(orders) == ()


async def test_the_list_of_providers_is_whole_or_there_is_none(orders: "Desk") -> None:
    """Held by: ``UnknownManifest`` in ``read_providers``."""
    await orders.place("database")
    await orders.place("orders")
    del orders.manifests["orders"]
    with pytest.raises(UnknownManifest, match="no module 'orders' is installed"):
        await providers(orders)


async def test_a_second_provider_of_one_type_is_refused_and_both_are_named(orders: "Desk") -> None:
    orders.granting("postgres", provides=("cache.1", "database.1"))
    await orders.place("database")
    assert await orders.place("database", size="large") == Placed(revision=3, changed=True)
    for module, machine in (("database", "beta"), ("postgres", "alpha")):
        refused = await orders.place(module, machine)
        assert isinstance(refused, Refused)
        assert refused.code == "provided-twice"
        assert f"{module}@{machine} provides" in refused.why
        assert "database.1 by database@alpha" in refused.why
        assert "cache.1" not in refused.why
    await orders.remove("database")
    assert await orders.place("database", "beta") == Placed(revision=5, changed=True)


async def test_of_two_providers_placed_at_once_one_is_refused(orders: "Desk") -> None:
    outcomes = await asyncio.gather(*(orders.place("database", name) for name in ("alpha", "beta")))
    assert sorted(type(one).__name__ for one in outcomes) == ["Placed", "Refused"]


async def test_beside_a_module_that_cannot_be_read_no_provider_is_placed(orders: "Desk") -> None:
    orders.granting("unreadable", provides=("database.1",))
    await orders.place("unreadable")
    del orders.manifests["unreadable"]
    refused = await orders.place("database", "beta")
    assert isinstance(refused, Refused)
    assert refused.code == "unknown-module"
    assert "'unreadable'" in refused.why
    assert isinstance(await orders.place("orders", "beta"), Placed)
