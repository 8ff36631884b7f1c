"""Who may have parked tells: every placed runtime that is told something, whole or not at all."""

from typing import TYPE_CHECKING

import pytest

from mesh_runtime.contracts import Manifest
from mesh_runtime.contracts.parking import Listeners
from mesh_runtime_controller.entitling import UnknownManifest

if TYPE_CHECKING:
    from conftest import Desk

FOUNDED = ("controller@alpha", "host@alpha", "host@beta")


async def listeners(desk: "Desk") -> tuple[str, ...]:
    return (await desk.controller.listeners(Listeners())).value


@pytest.fixture
def told(desk: "Desk") -> "Desk":
    for module, tells in {"orders": ("order-placed.1",), "silent": ()}.items():
        desk.manifests[module] = Manifest(module=module, version="1", command=("run",), needs=("database.1/orders",), told=tells)
    return desk


async def test_listeners_are_those_that_are_told_something(told: "Desk") -> None:
    """The controller and the hosts are there from the founding on, without a placement."""
    assert await listeners(told) == FOUNDED
    await told.place("silent")
    await told.place("orders", "beta")
    assert await listeners(told) == (*FOUNDED, "orders@beta")


async def test_a_listener_that_was_removed_is_one_until_the_push(told: "Desk") -> None:
    await told.place("orders")
    await told.remove("orders")
    assert await listeners(told) == (*FOUNDED, "orders@alpha")
    await told.push()
    assert await listeners(told) == FOUNDED


async def test_the_list_is_whole_or_there_is_none(told: "Desk") -> None:
    await told.place("orders")
    del told.manifests["orders"]
    with pytest.raises(UnknownManifest, match="no module 'orders' is installed"):
        await listeners(told)
