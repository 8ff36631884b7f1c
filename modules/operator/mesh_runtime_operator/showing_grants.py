"""How grants look: a table for people, one JSON document for programs. Pure: it returns, and asks nobody."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mesh_runtime.contracts import Identity, Missing, Refused
from mesh_runtime.contracts.granting import GrantRow, GrantsShown
from mesh_runtime.contracts.operating import Rekeyed
from mesh_runtime_operator.issuers import Said

_COLOURS = {"confirmed": "green", "issued": "yellow", "drawn": "yellow", "open": "yellow", "retiring": "yellow", "revoked": "red"}


def grants(said: Sequence[Said]) -> RenderableType:
    """Every grant that was told, and every login that nobody answers for."""
    rows = _rows(said)
    parts: list[RenderableType] = [_table(rows)] if rows else [Text("nothing is granted" if said else "nothing provides grants")]
    return Group(*parts, *(Text(f"orphan: {login} at {issuer}: no record knows it") for issuer, login in _orphans(said)))


def document(said: Sequence[Said]) -> dict[str, Any]:
    """The document of ``mesh grants --json``."""
    return {
        "outcome": "grants",
        "whole": all(one.is_done for one in said),
        "grants": [_row(one) for one in _rows(said)],
        "orphans": [{"issuer": issuer, "login": login} for issuer, login in _orphans(said)],
        "unanswered": [{"issuer": one.issuer, "type": one.type, "why": why_not(one)} for one in said if not one.is_done],
    }


def acted(whom: str, shown: GrantsShown) -> RenderableType:
    """What an act on one grant did, and how the grant stands now."""
    head = Text(f"{whom}: {shown.done}" if shown.done else whom)
    return Group(head, _table(shown.rows)) if shown.rows else head


def rekeyed(identity: Identity, by_controller: Rekeyed, said: Sequence[Said]) -> RenderableType:
    """What was forgotten or recorded, and where."""
    key = f"its key is {by_controller.key}" if by_controller.key else "it has no key, the next that it presents is taken"
    lines = [Text(f"{identity} is rekeyed, at revision {by_controller.revision}: {key}")]
    lines += [Text(f"  {one.issuer}: {one.outcome.done or 'done'}") for one in said if isinstance(one.outcome, GrantsShown)]
    return Group(*lines)


def rekeyed_document(identity: Identity, by_controller: Rekeyed, said: Sequence[Said]) -> dict[str, Any]:
    """The document of ``mesh rekey --json``."""
    return {
        **by_controller.model_dump(mode="json"),
        "identity": str(identity),
        "whole": all(one.is_done for one in said),
        "issuers": [{"issuer": one.issuer, "type": one.type, "done": one.is_done, "why": why_not(one)} for one in said],
    }


def why_not(said: Said) -> str:
    """Why an issuer did not do what it was asked; empty if it did."""
    if isinstance(said.outcome, Refused):
        return f"{said.issuer} ({said.type}) refuses: {said.outcome.why} [{said.outcome.code}]"
    return f"{said.issuer} ({said.type}) is unanswered: {said.outcome}" if isinstance(said.outcome, Missing) else ""


def _table(rows: Iterable[GrantRow]) -> Table:
    table = Table("identity", "resource", "issuer", "since", "sequence", "state", "confirmed", "detail", box=None, pad_edge=False)
    for row in rows:
        state = Text(row.state, style=_COLOURS.get(row.state, ""))
        sequence = str(row.sequence) if row.sequence else ""
        table.add_row(row.consumer, row.resource, row.issuer, row.since, sequence, state, row.confirmed, Text(row.detail))
    return table


def _row(row: GrantRow) -> dict[str, Any]:
    values = row.model_dump(mode="json")
    return {"identity": values.pop("consumer"), **values}


def _rows(said: Sequence[Said]) -> list[GrantRow]:
    rows = [row for one in said if isinstance(one.outcome, GrantsShown) for row in one.outcome.rows]
    return sorted(rows, key=lambda row: (row.consumer, row.resource, row.sequence))


def _orphans(said: Sequence[Said]) -> Iterator[tuple[str, str]]:
    for one in said:
        if isinstance(one.outcome, GrantsShown):
            yield from ((one.issuer, login) for login in sorted(one.outcome.orphans))
