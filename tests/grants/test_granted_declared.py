"""What an author writes with ``@granted``, and what is refused when the class is made."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, assert_type, cast

import pytest

from mesh_runtime import Access, ContractError, Database, DatabaseAccess, ModuleRuntime, ModuleSettings, NotGranted, Resource, granted, told
from mesh_runtime.asking import Asker, Scope, scoped
from mesh_runtime.contracts.granting import GrantRotated
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.grants.granted import GrantedMethod
from mesh_runtime.runtime import manifest_of
from mesh_runtime.telling import Teller

ORDERS = Database(name="orders")


class Orders(ModuleRuntime):
    """As the guide writes one."""

    @granted(ORDERS)
    async def pool(self, access: DatabaseAccess) -> AsyncIterator[list[str]]:
        """The pool."""
        yield [access.user]


def made(cls: type[ModuleRuntime]) -> Any:
    nothing = cast("Any", None)
    return cls(Identity(cls.module, "alpha"), ModuleSettings(), Path(), cast("Asker", nothing), cast("Teller", nothing))


class Given:
    """One grant, as its slot sees it."""

    def __init__(self, value: object) -> None:
        self.value = value
        self.holders = 0

    def taken(self) -> None:
        self.holders += 1

    def let_go(self) -> None:
        self.holders -= 1


def test_the_attribute_is_what_the_method_yields_and_on_the_class_it_is_the_method() -> None:
    orders = made(Orders)
    Orders.pool.slot(orders).put(Given(["a"]))
    assert_type(cast("Orders", orders).pool, list[str])
    assert orders.pool == ["a"]
    assert_type(Orders.pool, GrantedMethod[list[str]])
    assert Orders.pool.resource is ORDERS
    assert Orders.pool.__doc__ == "The pool."


def test_it_cannot_be_read_before_it_is_granted_nor_set() -> None:
    orders = made(Orders)
    with pytest.raises(NotGranted, match=r"Orders\.pool \(database\.1/orders\) cannot be read: it is not granted yet"):
        _ = orders.pool
    with pytest.raises(AttributeError, match=r"Orders\.pool is what was granted"):
        orders.pool = 1


def test_two_objects_of_one_class_do_not_share_it() -> None:
    one, other = made(Orders), made(Orders)
    Orders.pool.slot(one).put(Given(1))
    with pytest.raises(NotGranted):
        _ = other.pool


def test_the_manifest_says_what_it_needs_and_what_it_is_told() -> None:
    manifest = manifest_of(Orders, "1")
    assert manifest.needs == ("database.1/orders",)
    assert manifest.told == ("grant-revoked.1", "grant-rotated.1")
    assert manifest.tells == ("grant-confirmed.1",)


# ---------------------------------------------------------------------------------------------------- handlers


def test_a_handler_ends_with_the_value_with_which_it_began_and_lets_it_go() -> None:
    orders, old, new = made(Orders), Given("old"), Given("new")
    slot = Orders.pool.slot(orders)
    slot.put(old)
    with scoped(Scope(what="handler")):
        assert orders.pool == "old"
        assert orders.pool == "old"
        slot.put(new)
        assert orders.pool == "old"
        assert (old.holders, new.holders) == (1, 0)
    assert (old.holders, new.holders) == (0, 0)
    with scoped(Scope(what="next handler")):
        assert orders.pool == "new"


def test_a_handler_that_reads_nothing_holds_nothing() -> None:
    orders, given = made(Orders), Given("x")
    Orders.pool.slot(orders).put(given)
    with scoped(Scope(what="handler")):
        assert given.holders == 0


def test_outside_of_a_handler_it_is_the_one_in_force_and_nothing_is_held() -> None:
    orders, given = made(Orders), Given("x")
    slot = Orders.pool.slot(orders)
    slot.put(given)
    assert orders.pool == "x"
    assert given.holders == 0
    slot.put(Given("y"))
    assert orders.pool == "y"


async def test_tasks_and_threads_of_a_handler_read_what_it_reads() -> None:
    orders, old = made(Orders), Given("old")
    slot = Orders.pool.slot(orders)
    slot.put(old)

    async def child() -> object:
        return orders.pool

    with scoped(Scope(what="handler")):
        assert await asyncio.to_thread(lambda: orders.pool) == "old"
        slot.put(Given("new"))
        assert orders.pool == "old"
        assert await asyncio.create_task(child()) == "old"
        assert old.holders == 1
    assert old.holders == 0


def test_reads_that_race_with_the_handlers_end_leave_no_hold_behind() -> None:
    orders, given = made(Orders), Given("x")
    Orders.pool.slot(orders).put(given)
    scope = Scope(what="handler")
    taking, ended = threading.Event(), threading.Event()

    def take() -> tuple[Given, Callable[[], None]]:
        taking.set()
        given.taken()
        return given, given.let_go

    def end() -> None:
        taking.wait(5)
        scope.end()
        ended.set()

    ending = threading.Thread(target=end)
    ending.start()
    assert scope.kept("key", take) is given
    ending.join(5)
    assert ended.is_set()
    assert scope.kept("key", take) is given  # the scope is over: taken, and given back at once
    assert given.holders == 0


# ---------------------------------------------------------------------------------------------------- refused


def test_what_is_no_async_generator_is_refused() -> None:
    with pytest.raises(ContractError, match=r"pool is no async generator: write `async def` with one `yield`"):

        class Wrong(ModuleRuntime):
            @granted(ORDERS)  # type: ignore[arg-type]  # what is refused
            async def pool(self, access: DatabaseAccess) -> int:
                return 1


def test_what_is_no_resource_is_refused() -> None:
    with pytest.raises(
        ContractError, match=r"@granted\(<class .*Database'>\): give it a resource, as `@granted\(Database\(name=\.\.\.\)\)`"
    ):
        granted(Database)  # type: ignore[arg-type]  # what is refused


def test_an_access_that_is_not_annotated_is_refused() -> None:
    with pytest.raises(ContractError, match="annotate 'access' with DatabaseAccess"):

        class Wrong(ModuleRuntime):
            @granted(ORDERS)
            async def pool(self, access) -> AsyncIterator[int]:  # type: ignore[no-untyped-def]  # what is refused
                yield 1


def test_another_access_is_refused() -> None:
    class OtherAccess(Access):
        at: str

    with pytest.raises(
        ContractError, match="'access' is annotated with OtherAccess, but the access to what it is granted is DatabaseAccess"
    ):

        class Wrong(ModuleRuntime):
            @granted(ORDERS)  # type: ignore[arg-type]  # what is refused
            async def pool(self, access: OtherAccess) -> AsyncIterator[int]:
                yield 1


@pytest.mark.parametrize(
    ("annotation", "fits"), [("DatabaseAccess", True), ("types.DatabaseAccess", True), ("Database", False), ("str", False)]
)
def test_an_annotation_that_is_a_text_is_read(annotation: str, fits: bool) -> None:
    async def pool(self: object, access: DatabaseAccess) -> AsyncIterator[int]:
        yield 1

    pool.__annotations__["access"] = annotation
    if fits:
        granted(ORDERS)(pool)
    else:
        with pytest.raises(ContractError, match="the access to what it is granted is DatabaseAccess"):
            granted(ORDERS)(pool)


def test_a_method_that_takes_more_is_refused() -> None:
    with pytest.raises(ContractError, match="must take exactly self and the access, annotated with DatabaseAccess"):

        class Wrong(ModuleRuntime):
            @granted(ORDERS)  # type: ignore[arg-type]  # what is refused
            async def pool(self, access: DatabaseAccess, more: int) -> AsyncIterator[int]:
                yield 1


def test_one_resource_with_two_methods_is_refused() -> None:
    with pytest.raises(ContractError, match=r"Twice\.pool: database\.1/orders is granted to Twice\.again already: one method enters it"):

        class Twice(ModuleRuntime):
            @granted(ORDERS)
            async def pool(self, access: DatabaseAccess) -> AsyncIterator[int]:
                yield 1

            @granted(Database(name="orders"))
            async def again(self, access: DatabaseAccess) -> AsyncIterator[int]:
                yield 1


def test_two_resources_are_two_grants() -> None:
    class Two(ModuleRuntime):
        @granted(Database(name="a"))
        async def a(self, access: DatabaseAccess) -> AsyncIterator[int]:
            yield 1

        @granted(Database(name="b"))
        async def b(self, access: DatabaseAccess) -> AsyncIterator[int]:
            yield 1

    assert manifest_of(Two, "1").needs == ("database.1/a", "database.1/b")


def test_a_module_that_needs_what_it_provides_itself_is_refused() -> None:
    class OwnAccess(Access):
        at: str

    class Own(Resource[OwnAccess], provided_by="circle"):
        name: str

    with pytest.raises(ContractError, match=r"Circle\.pool: own\.1/x is provided by the module 'circle' itself: it cannot wait"):

        class Circle(ModuleRuntime):
            @granted(Own(name="x"))
            async def pool(self, access: OwnAccess) -> AsyncIterator[int]:
                yield 1


def test_the_tells_of_grants_are_the_librarys() -> None:
    with pytest.raises(ContractError, match="GrantRotated is handled by the library"):

        class Wrong(ModuleRuntime):
            @told(GrantRotated)
            async def rotated(self, tell: GrantRotated) -> None:
                """Nothing."""
