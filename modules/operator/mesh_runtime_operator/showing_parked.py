"""How parked tells look: a table for people, one JSON document for programs. Pure: it returns, and asks nobody.

Any text in a parked tell may be anybody's: what a terminal would obey is shown by its number.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mesh_runtime.contracts import Missing, Reason, Refused
from mesh_runtime.contracts.parking import ParkedShown, ParkedTell


def listed(shown: Mapping[str, ParkedShown], complete: bool) -> RenderableType:
    """Every parked tell that was told of, and how many more there are."""
    rows = [(identity, row) for identity, one in shown.items() for row in one.rows]
    table = Table("identity", "id", "tell", "told by", "tried", "last", "reason", box=None, pad_edge=False)
    for identity, row in rows:
        table.add_row(identity, row.id, plain(row.type), _told_by(row), str(row.count), plain(row.last), Text(_reason(row)))
    parts: list[RenderableType] = [table] if rows else [Text("nothing is parked")] if complete else []
    return Group(*parts, *(Text(f"{identity} has {one.more} more") for identity, one in shown.items() if one.more))


def document(shown: Mapping[str, ParkedShown], whys: Mapping[str, str]) -> dict[str, Any]:
    """The document of ``mesh parked list --json``."""
    return {
        "outcome": "parked",
        "whole": not whys and not any(one.more for one in shown.values()),
        "parked": [{"identity": identity, **row.model_dump(mode="json")} for identity, one in shown.items() for row in one.rows],
        "more": {identity: one.more for identity, one in shown.items() if one.more},
        "unanswered": [{"identity": identity, "why": why} for identity, why in whys.items()],
    }


def each_document(deed: str, shown: ParkedShown, whys: Mapping[str, str], acted_on: int) -> dict[str, Any]:
    """The document of an act on all: what was done, and what was not, and why. Those after the first that was unanswered were not tried."""
    ids = list(dict.fromkeys(row.id for row in shown.rows))
    return {
        "outcome": "parked-each",
        "act": deed,
        "whole": not whys and not shown.more and acted_on == len(ids),
        "done": [one for one in ids[:acted_on] if one not in whys],
        "not-done": [{"id": one, "why": why} for one, why in whys.items()],
        "not-tried": ids[acted_on:],
        "more": shown.more,
    }


def acted(identity: str, shown: ParkedShown) -> RenderableType:
    """What came of an act on one parked tell."""
    row = shown.rows[0]
    match shown.act:
        case "drop":
            return Text(f"{row.id} at {identity} is dropped: {plain(row.type)} told by {_told_by(row)}, {row.size} bytes, {_reason(row)}")
        case "replay" if shown.failed:
            return Text(f"{row.id} at {identity} failed again and stays parked: {plain(shown.failed)}")
        case "replay":
            return Text(f"{row.id} at {identity} was handled: {plain(row.type)} told by {_told_by(row)}")
    return Group(*_whole(identity, shown, row))


def _whole(identity: str, shown: ParkedShown, row: ParkedTell) -> Iterator[RenderableType]:
    yield Text(f"{row.id} at {identity}")
    facts = {
        "tell": plain(row.type),
        "message": plain(row.message_id),
        "told by": _told_by(row),
        "tried": f"{row.count} times, first {plain(row.first)}, last {plain(row.last)}" if not row.put_by else "never",
        "reason": _reason(row),
        "body": f"{row.size} bytes" + (", the first of them:" if shown.cut else ""),
    }
    for name, fact in facts.items():
        yield Text(f"  {name:<8} {fact}")
    yield Text(plain(shown.body, keep="\n\t"))


def why_not(identity: str, outcome: ParkedShown | Refused | Missing) -> str:
    """Why a runtime did not do what it was asked; empty if it did."""
    if isinstance(outcome, Refused):
        again = "; trying again can help" if outcome.again else ""
        return f"{identity} refuses: {plain(outcome.why)} [{outcome.code}]{again}"
    if isinstance(outcome, Missing):
        if outcome.reason is Reason.NOBODY:
            return f"{identity} is not there: it does not run, is not ready, or is told nothing ({plain(outcome.detail)})"
        return f"{identity} is unanswered: {plain(outcome.detail)}; whether it acted is unknown"
    return f"{identity}: {plain(outcome.failed)}" if outcome.failed else ""


def plain(text: str, keep: str = "") -> str:
    """``text`` with what is no letter, sign or blank shown by its number: a terminal obeys some of that."""
    return "".join(one if one.isprintable() or one in keep else f"\\x{ord(one):02x}" for one in text)


def _told_by(row: ParkedTell) -> str:
    return "?" if row.put_by else plain(row.sender) or "a login that the broker did not validate"


def _reason(row: ParkedTell) -> str:
    return f"not parked by it: {plain(row.put_by)} has put it there" if row.put_by else plain(row.reason)
