"""Placing and removing: recorded once, counted, refused with words where it could never take effect."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from mesh_runtime.contracts import Machine, Refused
from mesh_runtime.contracts.operating import Placed, Removed
from mesh_runtime.testing.ca import CertificateAuthority
from mesh_runtime.trust import Authority

if TYPE_CHECKING:
    from conftest import Desk

AUTHORITY = CertificateAuthority("store's CA")
CA = AUTHORITY.certificate.decode()
PAST = datetime(2001, 1, 1, tzinfo=UTC)
LEAF = AUTHORITY.issue("store.mesh")


def refusal(outcome: object) -> tuple[str, str]:
    assert isinstance(outcome, Refused), outcome
    return outcome.code, outcome.why


async def test_a_placement_is_recorded_and_the_same_again_changes_nothing(desk: "Desk") -> None:
    assert await desk.place("networking") == Placed(revision=2, changed=True)
    assert await desk.place("networking") == Placed(revision=2, changed=False)
    assert await desk.place("networking", "beta") == Placed(revision=3, changed=True)


async def test_other_parameters_are_a_change_and_the_history_stays(desk: "Desk") -> None:
    await desk.place("store", address="a:1", ca=CA)
    assert await desk.place("store", address="a:2", ca=CA) == Placed(revision=3, changed=True)
    assert await desk.remove("store") == Removed(revision=4)
    async with desk.controller.store.read() as connection:
        rows = (await connection.exec_driver_sql("SELECT since_revision, ended_revision FROM placements ORDER BY id")).all()
    assert [tuple(row) for row in rows] == [(2, 3), (3, 4)]


async def test_an_unknown_module_or_machine_is_refused_with_those_that_are_known(desk: "Desk") -> None:
    code, why = refusal(await desk.place("netwrking"))
    assert code == "unknown-module"
    assert "networking" in why
    assert refusal(await desk.place("networking", "gamma")) == ("unknown-machine", "the mesh has no machine gamma; it has alpha, beta")
    assert refusal(await desk.remove("networking", "gamma"))[0] == "unknown-machine"
    assert refusal(await desk.place("Net_working"))[0] == "bad-name"
    assert refusal(await desk.remove("networking"))[0] == "not-placed"


async def test_what_the_founding_put_there_is_neither_placed_anew_nor_removed(desk: "Desk") -> None:
    assert await desk.place("host", "beta") == Placed(revision=1, changed=False)
    assert await desk.place("controller", "alpha") == Placed(revision=1, changed=False)
    code, why = refusal(await desk.place("controller", "beta"))
    assert code == "seat-taken"
    assert "controller@alpha" in why
    assert refusal(await desk.remove("host", "beta"))[0] == "not-removable"
    assert refusal(await desk.place("host", "gamma"))[0] == "unknown-machine"


async def test_a_second_store_is_refused_and_the_holder_named(desk: "Desk") -> None:
    await desk.place("store", "alpha", address="a:1", ca=CA)
    code, why = refusal(await desk.place("store", "beta", address="b:1", ca=CA))
    assert code == "seat-taken"
    assert "store@alpha" in why
    await desk.remove("store", "alpha")
    assert isinstance(await desk.place("store", "beta", address="b:1", ca=CA), Placed)


async def test_of_two_stores_placed_at_once_one_is_refused(desk: "Desk") -> None:
    outcomes = await asyncio.gather(*(desk.place("store", name, address=f"{name}:1", ca=CA) for name in ("alpha", "beta")))
    assert sorted(type(one).__name__ for one in outcomes) == ["Placed", "Refused"]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"address": "a:1"}, "missing: ca"),
        ({"ca": CA}, "missing: address"),
        ({"address": "a:1", "ca": CA, "colour": "red"}, "not known: colour"),
        ({"address": "https://a:1", "ca": CA}, "address:"),
        ({"address": "a:0", "ca": CA}, "address:"),
        ({"address": "a:1", "ca": "no certificate"}, "no certificate in PEM"),
        ({"address": "a:1", "ca": LEAF.certificate.decode()}, "not one of a CA"),
        ({"address": "a:1", "ca": CA + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}, "private key"),
    ],
)
async def test_a_store_with_wrong_parameters_is_refused_and_says_which(desk: "Desk", parameters: dict[str, str], words: str) -> None:
    code, why = refusal(await desk.place("store", **parameters))
    assert code == "bad-parameters"
    assert words in why
    assert "AAAA" not in why


@pytest.mark.parametrize(("chain", "bad"), [(False, True), (True, True), (False, False)])
async def test_a_ca_that_has_expired_is_refused_wherever_it_stands_in_the_file(desk: "Desk", chain: bool, bad: bool) -> None:
    """Held by: ``ended < now``."""
    old = Authority.create("old CA", now=lambda: PAST, lifetime=timedelta(days=1)).pem.decode()
    desk.controller.clock = int((PAST + timedelta(days=2 if bad else 0)).timestamp())
    outcome = await desk.place("store", address="a:1", ca=CA + old if chain else old)
    if not bad:
        assert outcome == Placed(revision=2, changed=True)
        return
    code, why = refusal(outcome)
    assert (code, "'CN=old CA' has expired at 2001-01-02T00:00:00+00:00" in why) == ("bad-parameters", True)
    async with desk.controller.store.read() as connection:
        assert (await connection.exec_driver_sql("SELECT count(*) FROM placements")).scalar() == 0


@pytest.mark.parametrize("name", ["größe", "a\nb", "a/b", "..", "A", "a@b", "", "a" * 300])
async def test_a_name_that_breaks_the_grammar_is_refused_wherever_it_stands(desk: "Desk", name: str) -> None:
    assert refusal(await desk.place(name))[0] == "bad-name"
    assert refusal(await desk.place("networking", name))[0] == "bad-name"
    assert refusal(await desk.remove("networking", name))[0] == "bad-name"
    assert (await desk.push_refused(name)).code == "unknown-machine"


async def test_parameters_with_newlines_and_unicode_are_kept_as_they_are(desk: "Desk") -> None:
    asked: list[dict[str, str]] = []

    def answer(machine: Machine) -> Refused:
        asked.append(dict(machine.parameters))
        return Refused(code="enough", why="seen")

    desk.module("web", answer)
    given = {"page": "one\ntwo\r\n\ttab \u0000 größe 🙂 ' \" %"}
    await desk.place("web", **given)
    assert await desk.place("web", **given) == Placed(revision=2, changed=False)
    await desk.push("alpha")
    assert asked == [given]


async def test_a_module_that_would_wait_for_ever_for_what_it_needs_is_refused_and_the_circle_named(desk: "Desk") -> None:
    """Held by: ``needs_circle`` in ``check_placement``."""
    desk.granting("mill", needs=("power.1/main",), provides=("flour.1",))
    desk.granting("wheel", needs=("flour.1/fine",), provides=("power.1",))
    desk.granting("bakery", needs=("flour.1/fine",))
    for module in ("mill", "bakery"):
        code, why = refusal(await desk.place(module))
        assert code == "needs-circle"
        assert "mill waits for wheel waits for mill" in why
    assert isinstance(await desk.place("networking"), Placed), "a circle of others is no business of its"
    desk.granting("wheel", provides=("power.1",))
    assert isinstance(await desk.place("mill"), Placed)
    assert isinstance(await desk.place("bakery"), Placed)


async def test_a_module_that_needs_what_it_provides_itself_is_a_circle(desk: "Desk") -> None:
    desk.granting("self", needs=("self.1/x",), provides=("self.1",))
    code, why = refusal(await desk.place("self"))
    assert (code, "self waits for self" in why) == ("needs-circle", True)
