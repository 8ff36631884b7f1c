"""``mesh parked`` as operators run it: over real runtimes, and over responders where a runtime must do what a sound one never does."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import structlog

from mesh_runtime import Found, Identity, ModuleRuntime, Refused, Tell, told
from mesh_runtime.contracts.manifest import Manifest
from mesh_runtime.contracts.parking import Listeners, ParkedAct, ParkedShown, ParkedTell
from mesh_runtime.testing.responder import MakeResponder
from mesh_runtime.testing.running import Running, Runtimes
from mesh_runtime.testing.stating import Answering, Failing
from mesh_runtime.testing.waiting import until
from mesh_runtime_operator import showing_parked as showing
from mesh_runtime_operator.exits import Exit

if TYPE_CHECKING:
    from conftest import Command

OPERATOR = Manifest(module="operator", version="0", command=("mesh",))


class Placed(Tell):
    number: int
    words: str = ""


class Orders(ModuleRuntime):
    """Records orders, once what it records them in is there."""

    tells = (Placed,)

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # passed on as they come
        self.recorded: dict[int, str] = {}
        self.full = True

    @told(Placed)
    async def record(self, order: Placed) -> None:
        if self.full or order.number == 13:
            raise OSError("no space left")
        self.recorded[order.number] = self.asked_by


@dataclass
class Desk:
    """An operator's context, and the command in it."""

    context: Path
    command: "Command"

    async def mesh(self, *arguments: str) -> tuple[int, str, str]:
        return await self.command(SimpleNamespace(context=self.context), "parked", *arguments)

    async def document(self, *arguments: str) -> tuple[int, Any]:
        code, out, _ = await self.mesh(*arguments, "--json")
        return code, json.loads(out)


@pytest_asyncio.fixture
async def desk(runtimes: Runtimes, command: "Command", tmp_path: Path) -> Desk:
    credentials = await runtimes.login(Identity("operator", "desk"), OPERATOR)
    context = tmp_path / "context"
    context.mkdir()
    values = {
        "broker": f"127.0.0.1:{runtimes.broker.ports.amqps}",
        "name": runtimes.broker.name,
        "pin": runtimes.broker.ca.pin,
        "vhost": runtimes.vhost,
        "machine": "desk",
        "state-root": str(tmp_path),
    }
    for name, value in values.items():
        (context / name).write_text(f"{value}\n")
    (context / "credentials").symlink_to(credentials)
    return Desk(context, command)


@dataclass
class Parked:
    """A runtime that has parked what it was told, and the numbers of that by their ids. Number 13 can never be handled."""

    running: Running
    id_of: dict[int, str]

    @property
    def recorded(self) -> dict[int, str]:
        recorded: dict[int, str] = self.running.module.recorded
        return recorded


@pytest_asyncio.fixture
async def orders(runtimes: Runtimes, desk: Desk) -> AsyncIterator[Parked]:
    with structlog.testing.capture_logs():  # a traceback for people takes longer than the test
        async with runtimes.run(Orders) as running:
            await running.ready()
            told_as = {await running.module.tell(Placed(number=one, words="\x1b[31mred")): one for one in (1, 2, 13)}
            await until(lambda: running.state.counts.get("tells-parked") == 3, "all are parked", within=10)
            running.module.full = False
            code, document = await desk.document("list", "orders@alpha")
            assert (code, document["outcome"], document["whole"], document["unanswered"]) == (0, "parked", True, [])
            assert [(one["identity"], one["sender"], one["count"]) for one in document["parked"]] == [("orders@alpha",) * 2 + (4,)] * 3
            yield Parked(running, {told_as[one["message_id"]]: one["id"] for one in document["parked"]})


@pytest.mark.timeout(90)  # half a dozen processes, on a machine that may be busy
async def test_what_is_parked_is_listed_and_shown(orders: Parked, desk: Desk) -> None:
    code, out, err = await desk.mesh("list", "orders@alpha")
    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.split() == ["identity", "id", "tell", "told", "by", "tried", "last", "reason"]
    assert {line.split()[1] for line in lines} == set(orders.id_of.values())
    assert [line.split()[2:5] for line in lines] == [["placed.1", "orders@alpha", "4"]] * 3
    assert all(line.endswith("raised: Orders.record: OSError: no space left") for line in lines)
    code, out, err = await desk.mesh("show", "orders@alpha", orders.id_of[2])
    assert (code, err) == (0, "")
    assert out.startswith(f"{orders.id_of[2]} at orders@alpha\n  tell     placed.1\n")
    assert json.loads(out.splitlines()[-1]) == {"number": 2, "words": "\x1b[31mred"}
    assert "\x1b" not in out


@pytest.mark.timeout(90)  # half a dozen processes, on a machine that may be busy
async def test_one_is_replayed_or_dropped(orders: Parked, desk: Desk) -> None:
    first, never = orders.id_of[1], orders.id_of[13]
    code, out, _ = await desk.mesh("replay", "orders@alpha", first)
    assert (code, out) == (0, f"{first} at orders@alpha was handled: placed.1 told by orders@alpha\n")
    assert orders.recorded == {1: "orders@alpha"}
    code, out, _ = await desk.mesh("replay", "orders@alpha", never)
    words = f"{never} at orders@alpha failed again and stays parked: raised: Orders.record: OSError: no space left\n"
    assert (code, out) == (Exit.FAILED, words)
    code, document = await desk.document("drop", "orders@alpha", never)
    assert (code, document["act"], document["rows"][0]["id"], document["rows"][0]["count"]) == (0, "drop", never, 5)
    code, out, err = await desk.mesh("drop", "orders@alpha", never)
    assert (code, out) == (Exit.REFUSED, "")
    assert f"orders@alpha has no tell '{never}' parked" in err
    code, document = await desk.document("list", "orders@alpha")
    assert [one["id"] for one in document["parked"]] == [orders.id_of[2]]


@pytest.mark.timeout(90)  # half a dozen processes, on a machine that may be busy
async def test_all_are_replayed_each_once_and_what_fails_stays(orders: Parked, desk: Desk) -> None:
    code, out, err = await desk.mesh("replay", "orders@alpha", "--all")
    assert (code, err) == (Exit.FAILED, "")
    assert sorted(line.split(": ")[0].split(" at orders@alpha ")[1] for line in out.splitlines()) == [
        "failed again and stays parked",
        "was handled",
        "was handled",
    ]
    assert orders.recorded == {1: "orders@alpha", 2: "orders@alpha"}
    code, document = await desk.document("replay", "orders@alpha", "--all")
    assert (code, document["whole"], document["done"], document["not-tried"]) == (Exit.FAILED, False, [], [])
    assert [one["why"] for one in document["not-done"]] == ["orders@alpha: raised: Orders.record: OSError: no space left"]
    code, document = await desk.document("drop", "orders@alpha", "--all")
    assert (code, document["whole"], document["not-done"], len(document["done"])) == (0, True, [], 1)
    assert await desk.mesh("drop", "orders@alpha", "--all") == (0, "nothing is parked at orders@alpha\n", "")
    assert await desk.mesh("list", "orders@alpha") == (0, "nothing is parked\n", "")


LISTENERS = Found[tuple[str, ...]](value=("orders@alpha", "orders@beta"), revision=2)


@pytest.mark.timeout(90)  # half a dozen processes, on a machine that may be busy
async def test_the_list_of_all_is_whole_or_names_who_did_not_answer(
    orders: Parked, desk: Desk, runtimes: Runtimes, responder: MakeResponder
) -> None:
    code, _, err = await desk.mesh("list")
    assert code == Exit.NOBODY
    assert "no controller answers" in err
    async with responder("controller@alpha", {Listeners: LISTENERS}):
        code, out, err = await desk.mesh("list")
        assert (code, len(out.splitlines())) == (Exit.UNANSWERED, 4)
        assert err.startswith("mesh: orders@beta is not there: it does not run, is not ready, or is told nothing")
        code, document = await desk.document("list")
        assert (code, document["whole"], len(document["parked"])) == (Exit.UNANSWERED, False, 3)
        assert [one["identity"] for one in document["unanswered"]] == ["orders@beta"]
        async with runtimes.run(Orders, "beta") as other:
            await other.ready()
            code, out, err = await desk.mesh("list")
            assert (code, len(out.splitlines()), err) == (0, 4, "")


ROW = ParkedTell(
    id="0" * 16,
    type="placed.1",
    message_id="m",
    sender="",
    reason="",
    count=0,
    first="",
    last="",
    size=3,
    put_by="thief\x1b[2J@beta",
)


@pytest.mark.parametrize(
    ("answer", "arguments", "code", "words"),
    [
        (Failing.NOBODY, ("list", "orders@alpha"), Exit.NOBODY, "orders@alpha is not there"),
        (Failing.MALFORMED, ("list", "orders@alpha"), Exit.UNANSWERED, "orders@alpha is unanswered"),
        (Failing.MALFORMED, ("drop", "orders@alpha", "0" * 16), Exit.UNANSWERED, "whether it acted is unknown"),
        (Refused(code="held", why="held by another", again=True), ("list", "orders@alpha"), Exit.REFUSED, "trying again can help"),
        (Refused(code="busy", why="at work", again=True), ("replay", "orders@alpha", "0" * 16), Exit.REFUSED, "at work [busy]"),
        (Refused(code="busy", why="at work", again=True), ("replay", "orders@alpha", "--all"), Exit.REFUSED, "at work [busy]"),
        (Refused(code="unsettled", why="not sure", again=True), ("drop", "orders@alpha", "0" * 16), Exit.PARTLY, "not sure [unsettled]"),
    ],
)
async def test_each_way_of_ending_has_its_exit(
    desk: Desk, responder: MakeResponder, answer: Answering, arguments: tuple[str, ...], code: Exit, words: str
) -> None:
    async with responder("orders@alpha", {ParkedAct: answer}):
        ended, out, err = await desk.mesh(*arguments)
    assert (ended, out.strip()) == (code, "")
    assert words in err


async def test_all_end_with_the_first_that_is_unanswered_and_say_how_many_are_left(desk: Desk, responder: MakeResponder) -> None:
    rows = tuple(ROW.model_copy(update={"id": f"{number:016}"}) for number in (1, 2, 3))

    def answering(ask: ParkedAct) -> ParkedShown | bytes:
        if ask.act == "list":
            return ParkedShown(act="list", rows=rows, more=5)
        return ParkedShown(act="drop", rows=(rows[0],)) if ask.message == rows[0].id else b"{"

    async with responder("orders@alpha", {ParkedAct: answering}) as runtime:
        code, document = await desk.document("drop", "orders@alpha", "--all")
        assert code == Exit.UNANSWERED
        assert [one.ask.message[-1:] for one in runtime.asked] == ["", "1", "2"]  # type: ignore[attr-defined]  # ParkedAct
        assert document["done"] == [rows[0].id]
        assert [one["id"] for one in document["not-done"]] == [rows[1].id]
        assert (document["not-tried"], document["more"], document["whole"]) == ([rows[2].id], 5, False)
        code, out, _ = await desk.mesh("list", "orders@alpha")
        assert code == 0
        assert out.splitlines()[-1] == "orders@alpha has 5 more"
        assert r"not parked by it: thief\x1b[2J@beta has put it there" in out
        assert "\x1b" not in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("replay", "orders@alpha"), "needs the id of one tell, or --all, and not both"),
        (("drop", "orders@alpha", "0" * 16, "--all"), "needs the id of one tell, or --all, and not both"),
        (("drop", "orders@alpha"), "needs the id of one tell, or --all, and not both"),
        (("list", "orders"), "it must read module@machine"),
        (("show", "orders@alpha"), "ID"),
    ],
)
async def test_a_wrong_line_is_a_matter_of_usage(desk: Desk, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = await desk.mesh(*arguments)
    assert (code, out) == (Exit.USAGE, "")
    assert words in err


def test_what_a_terminal_obeys_is_shown_by_its_number() -> None:
    assert showing.plain("a\x1b[2J\x07\n\u202eb é 漢") == "a\\x1b[2J\\x07\\x0a\\x202eb é 漢"
    assert showing.plain("a\nb\tc\r", keep="\n\t") == "a\nb\tc\\x0d"
