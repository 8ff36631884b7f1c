"""What the author of a provisioner gets wrong is refused when his class is made, or answered in words that say what would be right."""

import types

import pytest
from pydantic import SecretStr

from mesh_runtime.contracts.base import ContractError
from mesh_runtime.contracts.granting import Access, Resource
from mesh_runtime.grants.ledger import Ledger
from mesh_runtime.grants.providing import Claim, Provides
from tests.grants.parts import ONE, ORDERS, HonestConsumer, Maker, Mesh, Thing, ThingAccess, granted, refused


class OtherAccess(Access):
    password: SecretStr


class Whole:
    """All that an author writes; the tests leave out of it what they are about."""

    def ledger(self) -> Ledger:
        raise NotImplementedError

    async def make(self, claim: Claim[Thing]) -> ThingAccess:
        raise NotImplementedError

    async def check(self, access: ThingAccess) -> None: ...

    async def retire(self, login: str) -> None: ...

    async def logins(self) -> list[str]:
        return []


def made(*leave_out: str, bases: tuple[object, ...] = (Provides[Thing, ThingAccess],), more: dict[str, object] | None = None) -> type:
    """A class as an author writes it, without some of its methods."""
    body = {name: method for name, method in vars(Whole).items() if not name.startswith("__") and name not in leave_out}

    def fill(space: dict[str, object]) -> None:
        space.update(body, **more or {})

    return types.new_class("Careless", bases, {}, fill)


def test_a_class_that_has_all_of_it_is_taken() -> None:
    assert made().provided is Thing  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["make", "check", "retire", "logins"])
def test_a_method_that_is_missing_is_named(method: str) -> None:
    with pytest.raises(ContractError, match=f"Careless provides Thing and has no {method}: write each as `async def`"):
        made(method)


def test_all_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(ContractError, match="has no make, check, retire, logins"):
        made("make", "check", "retire", "logins")


def test_a_ledger_that_is_missing_is_named() -> None:
    with pytest.raises(ContractError, match=r"Careless provides Thing and has no ledger: write `def ledger\(self\) -> Ledger`"):
        made("ledger")


@pytest.mark.parametrize("method", ["make", "check", "retire", "logins"])
def test_a_method_that_is_no_async_def_is_named(method: str) -> None:
    with pytest.raises(ContractError, match=rf"Careless\.{method} must be `async def`"):
        made(more={method: lambda *_: None})


def test_an_access_of_another_resource_is_refused() -> None:
    with pytest.raises(ContractError, match="Careless provides Thing with OtherAccess, but the access to it is ThingAccess"):
        made(bases=(Provides[Thing, OtherAccess],))


def test_a_resource_that_another_module_provides_is_refused() -> None:
    with pytest.raises(ContractError, match="Careless: Thing is provided by the module 'maker' alone, this is 'baker'"):
        made(more={"module": "baker"})
    assert made(more={"module": "maker"}).provided is Thing  # type: ignore[attr-defined]


def test_without_its_resource_and_access_it_is_refused() -> None:
    with pytest.raises(ContractError, match=r"Careless: write the resource and its access, as `Provides\[Database, DatabaseAccess\]`"):
        made(bases=(Provides,))


def test_a_resource_that_does_not_say_who_provides_it_is_refused() -> None:
    with pytest.raises(ContractError, match="Loose does not say who provides it"):

        class Loose(Resource[ThingAccess]):
            name: str


def test_a_resource_that_is_named_by_more_than_scalars_is_refused() -> None:
    with pytest.raises(ContractError, match=r"Wide\.names must be a str, an int or a bool"):

        class Wide(Resource[ThingAccess], provided_by="maker"):
            names: tuple[str, ...]


def test_a_subclass_of_a_provisioner_provides_the_same() -> None:
    class Finer(Maker):
        """Finer."""

    assert Finer.provided is Thing


# ------------------------------------------------------------------------------------------------ seen only when it is called


async def test_a_make_that_is_not_repeatable_is_told_so(mesh: Mesh, orders: HonestConsumer) -> None:
    class Once(Maker):
        async def make(self, claim: Claim[Thing]) -> ThingAccess:
            if claim.resource.text in self.server.owners:
                raise FileExistsError(f"{claim.resource.name} exists already")
            return await super().make(claim)

    issuer = mesh.issuer(Once)
    mesh.server.failing["make: owned"] = ConnectionError("cut off")
    first = await refused(orders.ask(issuer))
    assert first.why == "Once.make raised ConnectionError: cut off"
    mesh.server.failing.clear()
    second = await refused(orders.ask(issuer))
    assert "Once.make raised FileExistsError: one exists already" in second.why
    assert "Once.make must be repeatable" in second.why
    assert (second.code, second.again) == ("make-failed", True)


async def test_a_make_that_draws_a_secret_of_its_own_is_told_so(mesh: Mesh, orders: HonestConsumer) -> None:
    """Removal: mesh_runtime/grants/making.py: return Failed("wrong-access", words)
    Assertion: answer == "wrong-access"
    """

    class Drawing(Maker):
        async def make(self, claim: Claim[Thing]) -> ThingAccess:
            return await super().make(claim._replace(secret=SecretStr("of-the-authors-own-drawing")))

    outcome = await orders.ask(mesh.issuer(Drawing))
    answer = getattr(outcome, "code", outcome.outcome)
    assert answer == "wrong-access", outcome
    why = (await refused(orders.ask(mesh.issuer(Drawing)))).why
    assert "the library draws the secret, make uses it" in why
    assert "of-the-authors-own-drawing" not in why


async def test_a_make_that_returns_something_else_is_told_so(mesh: Mesh, orders: HonestConsumer) -> None:
    class Other(Maker):
        async def make(self, claim: Claim[Thing]) -> ThingAccess:
            await super().make(claim)
            return OtherAccess(password=claim.secret)  # type: ignore[return-value]

    answer = await refused(orders.ask(mesh.issuer(Other)))
    assert (answer.code, answer.why) == ("wrong-access", "Other.make returned OtherAccess, it must be ThingAccess")

    class Nothing(Maker):
        async def make(self, claim: Claim[Thing]) -> ThingAccess:
            return None  # type: ignore[return-value]

    assert "returned NoneType" in (await refused(orders.ask(mesh.issuer(Nothing)))).why


async def test_an_access_that_cannot_be_written_is_told_so(mesh: Mesh, orders: HonestConsumer) -> None:
    class Strange(Maker):
        async def make(self, claim: Claim[Thing]) -> ThingAccess:
            made = await super().make(claim)
            return ThingAccess.model_construct(at=object(), user=made.user, password=made.password)  # type: ignore[arg-type]

    answer = await refused(orders.ask(mesh.issuer(Strange)))
    assert answer.code == "wrong-access"
    assert "ThingAccess.revealed raised" in answer.why


async def test_what_a_check_refuses_is_not_granted(mesh: Mesh, orders: HonestConsumer) -> None:
    class Unable(Maker):
        async def make(self, claim: Claim[Thing]) -> ThingAccess:
            made = await super().make(claim)
            self.server.accounts.clear()
            return made

    answer = await refused(orders.ask(mesh.issuer(Unable)))
    assert answer.code == "check-failed"
    assert "Unable.check raised PermissionError" in answer.why
    assert await mesh.states(ORDERS, ONE) == {1: "drawn"}
    assert (await granted(orders.ask(mesh.issuer()))).sequence == 2
