"""How outcomes and states look: tables and plain lines for people, one JSON document for programs. Pure: it returns, and asks nobody.

A refusal is shown whole: whom it refuses, by whom, why, and every unanswered question on its own line.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mesh_runtime.contracts import Refused
from mesh_runtime.contracts.operating import MachineOutcome, MachinePlan, Planned, Pushed
from mesh_runtime_operator.status import NOT_RUNNING, State

_COLOURS = {
    "ready": "green",
    "in-force": "green",
    "unchanged": "green",
    "removed": "green",
    "waiting": "yellow",
    "starting": "yellow",
    "draining": "yellow",
    "stale": "yellow",
    "unheard": "yellow",
    "blocked": "red",
    "refused": "red",
    "failed": "red",
    NOT_RUNNING: "red",
}
_SIGNS = {"add": "+", "change": "~", "remove": "-"}


def states_table(states: Mapping[str, State]) -> RenderableType:
    """One row a runtime: what it says of itself."""
    table = Table("runtime", "state", "stage", "cause", "since", "attempts", box=None, pad_edge=False)
    for identity, state in states.items():
        word = str(state.get("state", "?"))
        if word == NOT_RUNNING:
            table.add_row(identity, _coloured(word), "", Text(str(state.get("why", ""))), "", "")
            continue
        table.add_row(
            identity,
            _coloured(word),
            str(state.get("stage", "")),
            _cause(state),
            str(state.get("since", "")),
            str(state.get("attempts", "")),
        )
    return table


def _cause(state: State) -> Text:
    cause = state.get("cause")
    words = [str(cause.get("text", ""))] if isinstance(cause, Mapping) else []
    degraded = state.get("degraded")
    if isinstance(degraded, list):
        words += [f"degraded: {reason}" for reason in degraded]
    return Text("\n".join(words))


def planned(plan: Planned) -> RenderableType:
    """What a push would change, machine by machine, and the fingerprint to hold it to."""
    lines = [line for machine in plan.machines for line in _machine_plan(machine)]
    return Group(*lines, Text(f"fingerprint {plan.fingerprint}"))


def _machine_plan(plan: MachinePlan) -> Iterator[Text]:
    if plan.refused is not None:
        yield from refusal(plan.machine, plan.refused)
    elif plan.changes:
        yield Text(f"{plan.machine}: {len(plan.changes)} would change")
    elif not plan.ends:
        yield Text(f"{plan.machine}: nothing would change")
    else:
        yield Text(f"{plan.machine}: no element would change")
    for change in plan.changes:
        evidence = f"  ({change.evidence})" if change.evidence else ""
        yield Text(f"  {_SIGNS[change.change]} {change.element}{evidence}")
    for identity in plan.ends:
        yield Text(f"  - grants of {identity}  (its placement ended)")


def pushed(outcome: Pushed) -> RenderableType:
    """What came of a push, machine by machine and element by element."""
    return Group(*[line for machine in outcome.machines for line in _machine_outcome(machine)])


def _machine_outcome(outcome: MachineOutcome) -> Iterator[Text]:
    if outcome.refused is not None:
        yield from refusal(outcome.machine, outcome.refused, outcome.by)
    else:
        generation = f" at generation {outcome.generation}" if outcome.generation else ""
        by = f", by {outcome.by}" if outcome.by else ""
        why = f": {outcome.why}" if outcome.why else ""
        line = Text(f"{outcome.machine}: ")
        yield line.append_text(_coloured(outcome.verdict)).append(f"{generation}{by}{why}")
    if outcome.since:
        yield Text(f"  since {outcome.since}")
    for element in outcome.elements:
        detail = f": {element.detail}" if element.detail else ""
        yield Text("  ").append_text(_coloured(element.state)).append(f" {element.element}{detail}")


def refusal(whom: str, refused: Refused, by: str = "") -> Iterator[Text]:
    """Whom it refuses, by whom, why, and each unanswered question."""
    who = refused.by or by
    head = Text(f"{whom}: ").append_text(_coloured("refused"))
    yield head.append(f"{f' by {who}' if who else ''}: {refused.why} [{refused.code}]")
    for missing in refused.unanswered:
        yield Text(f"  unanswered: {missing}")
    yield Text("  trying again can help" if refused.again else "  trying again cannot help: something must be changed first")


def as_json(outcome: Any) -> Any:
    """An outcome as JSON values."""
    return outcome.model_dump(mode="json")


def ended(code: int, why: str) -> dict[str, object]:
    """The document of a command that ends without an outcome."""
    return {"outcome": "ended", "exit": int(code), "why": why}


def _coloured(word: str) -> Text:
    return Text(word, style=_COLOURS.get(word, ""))


def names(machines: Iterable[str]) -> str:
    """Machines as words: ``alpha, beta``, or all of them."""
    return ", ".join(machines) or "all machines"
