"""What a manifest says of grants, and what its login may therefore do."""

import re
from typing import Any

import pytest

from mesh_runtime.contracts import wire
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.manifest import Manifest, needs_circle
from mesh_runtime.contracts.rights import rights_of
from mesh_runtime.runtime import manifest_of
from tests.grants.runtimes.parts import MakerRuntime, Shop

MAKER, SHOP = Identity("maker", "alpha"), Identity("shop", "alpha")


def test_a_provisioner_says_what_it_provides_answers_and_is_told() -> None:
    manifest = manifest_of(MakerRuntime, "1")
    assert manifest.provides == ("thing.1",)
    assert manifest.answers == ("lookup:thing-issuer.1", "provision:thing.1", "tool:thing-grants.1")
    assert manifest.told == ("grant-confirmed.1",)
    assert manifest.tells == ("grant-revoked.1", "grant-rotated.1")


def test_a_provisioner_may_hold_the_queue_of_its_resource_and_nobody_else_may() -> None:
    queue = wire.provides_queue("thing.1")
    maker, shop = rights_of(MAKER, manifest_of(MakerRuntime, "1")), rights_of(SHOP, manifest_of(Shop, "1"))
    assert allows(maker.configure, queue)
    assert not allows(shop.configure, queue)
    for other in ("provides.thing.2", "provides.thingx1", "provides.thing.1.x", "xprovides.thing.1"):
        assert not allows(maker.configure, other)
    assert not allows(maker.write, queue)
    assert not allows(maker.read, queue)


def test_who_may_tell_what_of_a_grant() -> None:
    maker, shop = rights_of(MAKER, manifest_of(MakerRuntime, "1")), rights_of(SHOP, manifest_of(Shop, "1"))
    rotated, confirmed = wire.to_key(SHOP, "grant-rotated.1"), wire.to_key(MAKER, "grant-confirmed.1")
    assert maker.may_publish(wire.TELLS, rotated)
    assert not maker.may_publish(wire.TELLS, confirmed)
    assert shop.may_publish(wire.TELLS, confirmed)
    assert not shop.may_publish(wire.TELLS, rotated)
    assert shop.may_publish(wire.ASKS, "provision.thing.1")
    assert not shop.may_publish(wire.ASKS, "tool.thing-grants.1")


def test_no_login_has_the_rights_of_another_module_than_its_own() -> None:
    """Whom the mesh takes it for follows from its name, what it may do from its manifest."""
    operator = Manifest(module="operator", version="1", command=("mesh",))
    with pytest.raises(ValueError, match="shop@alpha cannot have the rights of the module 'operator'"):
        rights_of(SHOP, operator)


def allows(pattern: str, name: str) -> bool:
    return re.search(pattern, name) is not None


def module(name: str, needs: tuple[str, ...] = (), provides: tuple[str, ...] = ()) -> Manifest:
    return Manifest(module=name, version="1", command=("x",), needs=needs, provides=provides)


@pytest.mark.parametrize(
    ("manifests", "circle"),
    [
        ([], None),
        ([module("shop", ("thing.1/one",)), module("maker", (), ("thing.1",))], None),
        ([module("shop", ("thing.1/one",))], None),
        ([module("a", ("b.1/x",), ("a.1",)), module("b", ("a.1/y",), ("b.1",))], ("a", "b", "a")),
        ([module("b", ("a.1/y",), ("b.1",)), module("a", ("b.1/x",), ("a.1",))], ("a", "b", "a")),
        ([module("z", ("a.1/x",)), module("a", ("b.1/x",), ("a.1",)), module("b", ("a.1/y",), ("b.1",))], ("a", "b", "a")),
        ([module("self", ("own.1/x",), ("own.1",))], ("self", "self")),
        ([module("a", ("b.1/x",), ("a.1",)), module("b", ("c.1/x",), ("b.1",)), module("c", ("a.1/x",), ("c.1",))], ("a", "b", "c", "a")),
        ([module("a", ("b.2/x",), ("a.1",)), module("b", ("a.1/y",), ("b.1",))], None),
        ([module("a", ("b.1/x", "c.1/x"), ("a.1",)), module("b", (), ("b.1",)), module("c", ("b.1/x",), ("c.1",))], None),
    ],
)
def test_modules_that_wait_for_each_other_are_named_in_order(manifests: list[Any], circle: tuple[str, ...] | None) -> None:
    assert needs_circle(manifests) == circle
