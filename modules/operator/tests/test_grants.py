"""Grants as operators see them and act on them: responders stand for the controller and for two issuers."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from mesh_runtime.contracts import Found, Identity, Refused
from mesh_runtime.contracts.database import Database
from mesh_runtime.contracts.granting import GrantRow, GrantsShown, Provider, Providers, acts_on
from mesh_runtime.contracts.operating import Place, Placed, Rekey, Rekeyed
from mesh_runtime.testing.founding import FoundedMesh, FoundMesh
from mesh_runtime.testing.responder import Responder, responder_manifest
from mesh_runtime.testing.stating import Answering, Failing
from mesh_runtime_operator.exits import Exit
from mesh_runtime_operator.issuers import tool_of

if TYPE_CHECKING:
    from conftest import Command, Responding

CONTROLLER, DATABASE, CACHE = Identity("controller", "stand-in"), Identity("database", "alpha"), Identity("cache", "beta")
KEY = "0123456789abcdef" * 4
ORDERS = GrantRow(
    consumer="orders@alpha",
    resource="database.1/orders",
    issuer="database@alpha",
    state="confirmed",
    sequence=3,
    login="mesh-7",
    since="2026-11-30T10:00:00.000+00:00",
    confirmed="2026-11-30T10:00:01.000+00:00",
)
OLD = ORDERS.model_copy(update={"sequence": 2, "state": "retiring", "login": "mesh-6", "detail": "it is in use still"})
BILLS = GrantRow(consumer="bills@beta", resource="cache.1/bills", issuer="cache@beta", state="issued", sequence=1, login="c1")
PROVIDERS = (Provider(identity="cache@beta", type="cache.1"), Provider(identity="database@alpha", type="database.1"))
OF_CONTROLLER: dict[type, Answering] = {
    Place: Placed(revision=2, changed=True),
    Rekey: Rekeyed(revision=3, changed=True),
    Providers: Found[tuple[Provider, ...]](value=PROVIDERS, revision=2),
}
OF_DATABASE: dict[type, Answering] = {tool_of("database.1"): GrantsShown(rows=(ORDERS, OLD), orphans=("mesh-1",), done="the act is done")}
OF_CACHE: dict[type, Answering] = {tool_of("cache.1"): GrantsShown(rows=(BILLS,))}


@dataclass
class Mesh:
    """A mesh of two issuers, and what each was asked."""

    founded: FoundedMesh
    controller: Responder
    database: Responder
    cache: Responder

    async def providers(self, *types: str) -> None:
        found = tuple(Provider(identity="database@alpha", type=kind) for kind in types)
        await self.controller.say(Providers, Found[tuple[Provider, ...]](value=found, revision=2))

    async def database_says(self, stated: Answering) -> None:
        await self.database.say(tool_of("database.1"), stated)


@pytest_asyncio.fixture
async def issuing(founding: FoundMesh, responding: "Responding") -> AsyncIterator[Mesh]:
    of = {CONTROLLER: OF_CONTROLLER, DATABASE: OF_DATABASE, CACHE: OF_CACHE}
    founded = await founding(modules=(), extra={who: responder_manifest(who, answers) for who, answers in of.items()})
    async with AsyncExitStack() as stack:
        yield Mesh(founded, *[await stack.enter_async_context(responding(founded, who, answers)) for who, answers in of.items()])


def asked(one: Responder) -> list[tuple[str, str, str]]:
    return [(each.ask.act, each.ask.consumer, each.ask.resource) for each in one.asked]  # type: ignore[attr-defined]  # GrantAct


# ---------------------------------------------------------------------------------------------------- grants


async def test_grants_shows_every_grant_of_every_issuer_and_each_orphan(issuing: Mesh, command: "Command") -> None:
    code, out, err = await command(issuing.founded, "grants")
    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.split() == ["identity", "resource", "issuer", "since", "sequence", "state", "confirmed", "detail"]
    assert [line.split()[:3] for line in lines[:3]] == [
        ["bills@beta", "cache.1/bills", "cache@beta"],
        ["orders@alpha", "database.1/orders", "database@alpha"],
        ["orders@alpha", "database.1/orders", "database@alpha"],
    ]
    assert lines[1].endswith("2         retiring   2026-11-30T10:00:01.000+00:00  it is in use still")
    assert lines[3:] == ["orphan: mesh-1 at database@alpha: no record knows it"]
    assert asked(issuing.database) == asked(issuing.cache) == [("list", "", "")]


async def test_grants_as_json_are_one_document(issuing: Mesh, command: "Command") -> None:
    code, out, _ = await command(issuing.founded, "grants", "--json")
    document = json.loads(out)
    assert (code, document["outcome"], document["whole"], document["unanswered"]) == (0, "grants", True, [])
    assert document["orphans"] == [{"issuer": "database@alpha", "login": "mesh-1"}]
    assert [(one["identity"], one["sequence"]) for one in document["grants"]] == [
        ("bills@beta", 1),
        ("orders@alpha", 2),
        ("orders@alpha", 3),
    ]
    assert document["grants"][2] == {
        "identity": "orders@alpha",
        "resource": "database.1/orders",
        "issuer": "database@alpha",
        "state": "confirmed",
        "sequence": 3,
        "login": "mesh-7",
        "since": "2026-11-30T10:00:00.000+00:00",
        "confirmed": "2026-11-30T10:00:01.000+00:00",
        "detail": "",
    }


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (Failing.NOBODY, Exit.UNANSWERED, "database@alpha (database.1) is unanswered: "),
        (Failing.MALFORMED, Exit.UNANSWERED, "database@alpha (database.1) is unanswered: "),
        (Refused(code="error", why="its ledger is away"), Exit.REFUSED, "database@alpha (database.1) refuses: its ledger is away [error]"),
    ],
)
async def test_an_issuer_that_says_nothing_is_named_and_the_list_is_not_whole(
    issuing: Mesh, command: "Command", answer: Answering, code: Exit, words: str
) -> None:
    """Held by: the exit of ``grants``."""
    await issuing.database_says(answer)
    ended, out, err = await command(issuing.founded, "grants", "--json")
    document = json.loads(out)
    assert (ended, document["whole"]) == (code, False)
    assert words in err
    assert [(one["issuer"], one["type"]) for one in document["unanswered"]] == [("database@alpha", "database.1")]
    assert document["unanswered"][0]["why"].startswith(words)
    assert [one["identity"] for one in document["grants"]] == ["bills@beta"], "what the other issuer said is shown"


async def test_without_the_controllers_word_there_is_no_list_of_grants(issuing: Mesh, command: "Command") -> None:
    await issuing.controller.say(Providers, Failing.ERROR)
    code, out, err = await command(issuing.founded, "grants", "--json")
    assert (code, json.loads(out)["outcome"]) == (Exit.UNANSWERED, "ended")
    assert "providers()" in err
    assert not issuing.database.asked


async def test_where_nothing_provides_grants_that_is_said(issuing: Mesh, command: "Command") -> None:
    await issuing.providers()
    assert await command(issuing.founded, "grants") == (0, "nothing provides grants\n", "")


# ---------------------------------------------------------------------------------------------------- acts


@pytest.mark.parametrize("resource", ["database.1/orders", "database/orders"])
@pytest.mark.parametrize("deed", ["rotate", "revoke"])
async def test_an_act_goes_to_the_issuer_of_the_resource_alone(issuing: Mesh, command: "Command", deed: str, resource: str) -> None:
    code, out, _ = await command(issuing.founded, deed, "orders@alpha", resource)
    assert (code, out.splitlines()[0]) == (0, "orders@alpha database.1/orders: the act is done")
    assert "confirmed" in out
    assert asked(issuing.database) == [(deed, "orders@alpha", "database.1/orders")]
    assert not issuing.cache.asked
    assert {one.sender for one in issuing.database.asked} == {"operator@alpha"}


async def test_an_act_as_json_is_what_the_issuer_said(issuing: Mesh, command: "Command") -> None:
    code, out, _ = await command(issuing.founded, "rotate", "orders@alpha", "database.1/orders", "--json")
    document = json.loads(out)
    assert (code, document["outcome"], document["done"]) == (0, "grants-shown", "the act is done")
    assert [row["sequence"] for row in document["rows"]] == [3, 2]


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (Refused(code="not-granted", why="there is no such grant"), Exit.REFUSED, "refused by database@alpha: there is no such grant"),
        (Failing.NOBODY, Exit.NOBODY, "nothing was changed"),
        (Failing.MALFORMED, Exit.UNANSWERED, "whether it acted is unknown"),
    ],
)
async def test_each_way_in_which_an_act_ends_has_its_exit(
    issuing: Mesh, command: "Command", answer: Answering, code: Exit, words: str
) -> None:
    await issuing.database_says(answer)
    ended, out, err = await command(issuing.founded, "revoke", "orders@alpha", "database.1/orders")
    assert (ended, out) == (code, "")
    assert words in err
    assert "database@alpha" in err


@pytest.mark.parametrize(
    ("types", "resource", "code", "words"),
    [
        (("database.1", "database.2"), "database/orders", Exit.USAGE, "could be database.1/orders or database.2/orders: write which"),
        (("database.1",), "orders", Exit.USAGE, "'orders' is no resource: it must read like database.1/orders"),
        (("database.1",), "queue/orders", Exit.REFUSED, "no placement provides queue; what is provided: database.1"),
        ((), "database.1/orders", Exit.REFUSED, "no placement provides database.1; what is provided: nothing"),
    ],
)
async def test_a_resource_that_cannot_be_found_is_named(
    issuing: Mesh, command: "Command", types: tuple[str, ...], resource: str, code: Exit, words: str
) -> None:
    await issuing.providers(*types)
    ended, _, err = await command(issuing.founded, "rotate", "orders@alpha", resource)
    assert ended == code
    assert words in err
    assert not issuing.database.asked


async def test_what_is_no_identity_is_a_wrong_command_line(issuing: Mesh, command: "Command") -> None:
    for deed in (("rotate", "orders", "database.1/orders"), ("rekey", "orders")):
        code, _, err = await command(issuing.founded, *deed)
        assert (code, "it must read module@machine" in err) == (Exit.USAGE, True)
    assert not issuing.controller.asked


# ---------------------------------------------------------------------------------------------------- keys


async def test_rekey_tells_the_controller_and_then_every_issuer(issuing: Mesh, command: "Command", tmp_path: Path) -> None:
    code, out, _ = await command(issuing.founded, "rekey", "orders@alpha")
    assert code == 0
    assert out.splitlines() == [
        "orders@alpha is rekeyed, at revision 3: it has no key, the next that it presents is taken",
        "  cache@beta: done",
        "  database@alpha: the act is done",
    ]
    assert asked(issuing.database) == asked(issuing.cache) == [("rekey", "orders@alpha", "")]
    assert [one.ask for one in issuing.controller.asked] == [Rekey(identity="orders@alpha"), Providers()]
    (tmp_path / "orders.pub").write_text(f"{KEY.upper()}\n")
    code, out, _ = await command(issuing.founded, "rekey", "orders@alpha", "--key", str(tmp_path / "orders.pub"), "--json")
    document = json.loads(out)
    assert (code, document["outcome"], document["identity"], document["whole"]) == (0, "rekeyed", "orders@alpha", True)
    assert issuing.controller.asked[2].ask == Rekey(identity="orders@alpha", key=KEY)


async def test_what_one_issuer_did_not_do_is_named_and_the_rest_is_done(issuing: Mesh, command: "Command") -> None:
    await issuing.database_says(Failing.NOBODY)
    code, out, err = await command(issuing.founded, "rekey", "orders@alpha", "--json")
    assert code == Exit.PARTLY
    assert "orders@alpha is not rekeyed there: database@alpha (database.1) is unanswered: " in err
    assert "run it again" in err
    document = json.loads(out)
    assert (document["whole"], [(one["issuer"], one["done"]) for one in document["issuers"]]) == (
        False,
        [("cache@beta", True), ("database@alpha", False)],
    )
    assert asked(issuing.cache) == [("rekey", "orders@alpha", "")]
    await issuing.database_says(GrantsShown(rows=()))
    assert (await command(issuing.founded, "rekey", "orders@alpha"))[0] == 0


async def test_who_issues_may_be_unanswered_once_the_controller_has_rekeyed(issuing: Mesh, command: "Command") -> None:
    await issuing.controller.say(Providers, Failing.ERROR)
    code, _, err = await command(issuing.founded, "rekey", "orders@alpha")
    assert (code, "who issues grants is unanswered" in err, "run it again" in err) == (Exit.PARTLY, True, True)


async def test_what_the_controller_refuses_to_rekey_no_issuer_is_asked(issuing: Mesh, command: "Command") -> None:
    await issuing.controller.say(Rekey, Refused(code="not-placed", why="orders@alpha is not placed, so it has no key"))
    code, _, err = await command(issuing.founded, "rekey", "orders@alpha")
    assert (code, "[not-placed]" in err) == (Exit.REFUSED, True)
    assert not issuing.database.asked


async def test_a_placement_is_recorded_with_the_public_key_of_a_file(issuing: Mesh, command: "Command", tmp_path: Path) -> None:
    file = tmp_path / "orders.pub"
    file.write_text(f"{KEY}\n")
    code, out, _ = await command(issuing.founded, "place", "orders", "alpha", "size=large", "--key", str(file))
    assert (code, out) == (0, "orders@alpha is placed, at revision 2; a push gives it effect\n")
    assert issuing.controller.asked[0].ask == Place(module="orders", machine="alpha", parameters={"size": "large"}, key=KEY)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n", "holds a private key; give the file with its public half. Nothing was sent"),
        ("12", "holds no public key: it must hold 64 hex digits"),
        (None, "cannot be read: No such file or directory"),
    ],
)
async def test_what_is_no_public_key_does_not_leave_the_machine(
    issuing: Mesh, command: "Command", tmp_path: Path, content: str | None, words: str
) -> None:
    file = tmp_path / "orders.pub"
    if content is not None:
        file.write_text(content)
    for line in (("place", "orders", "alpha"), ("rekey", "orders@alpha")):
        code, _, err = await command(issuing.founded, *line, "--key", str(file))
        assert code == Exit.USAGE
        assert words in err
        assert "AAAA" not in err
    assert not issuing.controller.asked


# ---------------------------------------------------------------------------------------------------- names


def test_the_tool_of_a_type_is_the_one_that_its_issuer_answers() -> None:
    assert tool_of("database.1").type_name() == acts_on(Database).type_name() == "database-grants.1"
    for wrong in ("database", "database.0", "Database.1", "database.1/orders", ""):
        with pytest.raises(ValueError, match="no type of a resource"):
            tool_of(wrong)
