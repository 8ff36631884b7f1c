"""Keys of placements: recorded once; another is refused by name, until the operator says otherwise; kept as history. B64."""

from typing import TYPE_CHECKING

import pytest

from mesh_runtime.contracts import Found, Refused
from mesh_runtime.contracts.granting import GrantTerms
from mesh_runtime.contracts.operating import Placed, Rekeyed
from mesh_runtime.trust.sealing import PrivateKey

if TYPE_CHECKING:
    from conftest import Desk

FIRST, SECOND = (str(PrivateKey.generate().public_key) for _ in range(2))


def refusal(outcome: object) -> tuple[str, str]:
    assert isinstance(outcome, Refused), outcome
    return outcome.code, outcome.why


@pytest.fixture
def orders(desk: "Desk") -> "Desk":
    desk.granting("orders", needs=("database.1/orders",))
    return desk


async def key_of(desk: "Desk", identity: str = "orders@alpha") -> str:
    """The key that an issuer is told."""
    found = await desk.terms(identity)
    assert isinstance(found, Found), found
    assert isinstance(found.value, GrantTerms)
    return found.value.key


async def history(desk: "Desk") -> list[tuple[str, str, int, int | None]]:
    async with desk.controller.store.read() as connection:
        rows = await connection.exec_driver_sql("SELECT identity, key, since_revision, ended_revision FROM keys ORDER BY id")
        return [tuple(row) for row in rows]


async def test_a_key_is_recorded_with_its_placement_and_the_same_again_changes_nothing(orders: "Desk") -> None:
    assert await orders.place_with_key("orders", FIRST) == Placed(revision=2, changed=True)
    assert await orders.place_with_key("orders", FIRST) == Placed(revision=2, changed=False)
    assert await orders.place_with_key("orders", f" {FIRST.upper()}\n") == Placed(revision=2, changed=False)
    assert await orders.place("orders") == Placed(revision=2, changed=False)
    assert await key_of(orders) == FIRST


async def test_a_key_that_comes_later_is_recorded_and_stays_through_other_parameters(orders: "Desk") -> None:
    await orders.place("orders")
    assert await key_of(orders) == ""
    assert await orders.place_with_key("orders", FIRST) == Placed(revision=3, changed=True)
    assert await orders.place("orders", size="large") == Placed(revision=4, changed=True)
    assert await key_of(orders) == FIRST


@pytest.mark.parametrize("parameters", [{}, {"size": "large"}])
async def test_b64_another_key_is_refused_by_name_and_changes_nothing(orders: "Desk", parameters: dict[str, str]) -> None:
    """
    Removal: modules/controller/mesh_runtime_controller/placements.py: return _other_key(new.identity, known, new.key)
    Assertion: assert isinstance(outcome, Refused), outcome
    """
    await orders.place_with_key("orders", FIRST)
    code, why = refusal(await orders.place_with_key("orders", SECOND, **parameters))
    assert code == "other-key"
    assert "mesh rekey orders@alpha" in why
    assert FIRST in why
    assert SECOND in why
    assert await orders.place("orders") == Placed(revision=2, changed=False)
    assert await key_of(orders) == FIRST


async def test_a_key_is_of_one_placement_and_no_other(orders: "Desk") -> None:
    await orders.place_with_key("orders", FIRST, "alpha")
    await orders.place_with_key("orders", SECOND, "beta")
    assert (await key_of(orders, "orders@alpha"), await key_of(orders, "orders@beta")) == (FIRST, SECOND)


async def test_after_rekey_the_key_is_forgotten_and_the_next_that_is_given_is_recorded(orders: "Desk") -> None:
    await orders.place_with_key("orders", FIRST)
    assert await orders.rekey("orders@alpha") == Rekeyed(revision=3, changed=True)
    assert await key_of(orders) == ""
    assert await orders.rekey("orders@alpha") == Rekeyed(revision=3, changed=False)
    assert await orders.place_with_key("orders", SECOND) == Placed(revision=4, changed=True)
    assert await key_of(orders) == SECOND
    assert await history(orders) == [("orders@alpha", FIRST, 2, 3), ("orders@alpha", SECOND, 4, None)]


async def test_rekey_records_another_key_at_once_and_the_same_again_changes_nothing(orders: "Desk") -> None:
    await orders.place_with_key("orders", FIRST)
    assert await orders.rekey("orders@alpha", SECOND) == Rekeyed(revision=3, changed=True, key=SECOND)
    assert await orders.rekey("orders@alpha", SECOND.upper()) == Rekeyed(revision=3, changed=False, key=SECOND)
    assert await key_of(orders) == SECOND


async def test_what_cannot_be_rekeyed_is_refused(orders: "Desk") -> None:
    assert refusal(await orders.rekey("orders@alpha")) == ("not-placed", "orders@alpha is not placed, so it has no key")
    assert refusal(await orders.rekey("orders@gamma"))[0] == "unknown-machine"
    assert refusal(await orders.rekey("orders"))[0] == "bad-name"
    await orders.place("orders")
    assert refusal(await orders.rekey("orders@alpha", "12"))[0] == "bad-key"


@pytest.mark.parametrize("key", ["12", FIRST + "0", "x" * 64, "0" * 64, "-----BEGIN PRIVATE KEY-----"])
async def test_what_is_no_public_key_is_refused_and_nothing_is_placed(orders: "Desk", key: str) -> None:
    """64 zeros are of the right form, and nothing can be sealed to them (RFC 7748, 6.1)."""
    code, _ = refusal(await orders.place_with_key("orders", key))
    assert code == "bad-key"
    assert await orders.place("orders") == Placed(revision=2, changed=True)


async def test_what_the_founding_placed_can_have_a_key_without_a_row(orders: "Desk") -> None:
    assert await orders.place_with_key("host", FIRST) == Placed(revision=2, changed=True)
    assert await orders.place_with_key("host", FIRST) == Placed(revision=2, changed=False)
    assert refusal(await orders.place_with_key("host", SECOND))[0] == "other-key"
    assert await orders.rekey("host@alpha", SECOND) == Rekeyed(revision=3, changed=True, key=SECOND)


async def test_a_key_goes_with_its_placement_once_the_end_was_pushed(orders: "Desk") -> None:
    """Until then it is the same placement: another key would be another's."""
    await orders.place_with_key("orders", FIRST)
    await orders.remove("orders")
    assert refusal(await orders.place_with_key("orders", SECOND))[0] == "other-key"
    assert await key_of(orders) == FIRST
    assert (await orders.push("alpha"))["alpha"].verdict == "unchanged"
    assert await orders.place_with_key("orders", SECOND) == Placed(revision=4, changed=True)
    assert await key_of(orders) == SECOND


async def test_a_placement_made_anew_without_a_key_has_none(orders: "Desk") -> None:
    await orders.place_with_key("orders", FIRST)
    await orders.remove("orders")
    await orders.push("alpha")
    await orders.place("orders")
    assert await key_of(orders) == ""
