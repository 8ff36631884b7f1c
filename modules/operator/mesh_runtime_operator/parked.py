"""``mesh parked list|show|replay|drop``: what runtimes could not handle and have put aside, and what an operator does about it.

Each runtime keeps its own parked tells and acts on them itself; the controller says which runtimes there are. What is listed is whole,
or it is said who gave no answer.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import typer
from rich.console import RenderableType

from mesh_runtime.asking import Asker
from mesh_runtime.contracts import BadName, Identity, Missing, Reason, Refused, Unanswered
from mesh_runtime.contracts.parking import Listeners, ParkedAct, ParkedDeed, ParkedShown
from mesh_runtime_operator import showing_parked as showing
from mesh_runtime_operator.acting import EPILOG, LONGEST, Json, Wait, errors, exit_of, print_outcome, refuse, run
from mesh_runtime_operator.asking import BUDGET, asker_of, unanswered_by_the_controller
from mesh_runtime_operator.context import read_context
from mesh_runtime_operator.exits import Ended, Exit
from mesh_runtime_operator.showing import as_json as document_of

#: Seconds of an act that are not its handler's.
BESIDE = 15.0

app = typer.Typer(
    help="What runtimes could not handle and have put aside: look at it, have it handled again, drop it.",
    epilog=EPILOG,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Who = Annotated[str, typer.Argument(metavar="IDENTITY", help="Whose parked tells: MODULE@MACHINE.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of one, as `mesh parked list` shows it.")]
IdOrAll = Annotated[str, typer.Argument(metavar="ID", help="The id of one, as `mesh parked list` shows it.")]
All = Annotated[bool, typer.Option("--all", help="All that are listed now, one after the other, instead of one.")]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="S", min=0.1, max=LONGEST, help="Seconds that its handler may take; at most 600 count.")
]


@dataclass(frozen=True, slots=True)
class Said:
    """What came of one act at one runtime. ``outcome`` is ``Missing`` where there was no answer: why. ``id`` is of the tell, if of one."""

    identity: str
    outcome: ParkedShown | Refused | Missing
    id: str = ""

    @property
    def exit(self) -> Exit:
        """How a command ends by this alone."""
        if isinstance(self.outcome, Missing):
            return Exit.NOBODY if self.outcome.reason is Reason.NOBODY else Exit.UNANSWERED
        if isinstance(self.outcome, Refused):
            return exit_of(self.outcome)
        return Exit.FAILED if self.outcome.failed else Exit.DONE


@app.command("list", epilog=EPILOG)
def list_(
    who: Annotated[str, typer.Argument(metavar="IDENTITY", help="Only this runtime's. None: of all that are placed.")] = "",
    wait: Wait = 10.0,
    as_json: Json = False,
) -> None:
    """Show what is parked, and why. Exit 0 only if every runtime that was asked has answered."""
    said = run(_list(_identity(who) if who else None, wait))
    missing = [one for one in said if not isinstance(one.outcome, ParkedShown)]
    shown = {one.identity: one.outcome for one in said if isinstance(one.outcome, ParkedShown)}
    whys = {one.identity: showing.why_not(one.identity, one.outcome) for one in missing}
    print_outcome(as_json, showing.document(shown, whys), lambda: showing.listed(shown, complete=not missing))
    for why in whys.values():
        errors().print(f"mesh: {why}")
    if missing:
        raise typer.Exit(missing[0].exit if len({one.exit for one in missing}) == 1 and len(said) == len(missing) else Exit.UNANSWERED)


@app.command(epilog=EPILOG)
def show(who: Who, message: Id, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Show one parked tell with its body, secrets masked."""
    _one("show", who, message, wait, as_json, BUDGET)


@app.command(epilog=EPILOG)
def replay(who: Who, message: IdOrAll = "", every: All = False, timeout: Timeout = 30.0, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Have a parked tell handled once more, as told by the one who told it. What fails stays parked, with its new reason."""
    budget = timeout / 0.7 + BESIDE
    _some("replay", who, message, every, wait, as_json, budget)


@app.command(epilog=EPILOG)
def drop(who: Who, message: IdOrAll = "", every: All = False, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Drop a parked tell for good. What was dropped is printed, and logged by its runtime."""
    _some("drop", who, message, every, wait, as_json, BUDGET)


def _some(deed: Literal["replay", "drop"], who: str, message: str, every: bool, wait: float, as_json: bool, budget: float) -> None:
    if bool(message) == every:
        raise Ended(Exit.USAGE, f"mesh parked {deed} needs the id of one tell, or --all, and not both")
    if message:
        _one(deed, who, message, wait, as_json, budget)
        return
    identity = _identity(who)
    listed, said = run(_each(deed, identity, wait, budget, as_json))
    if not isinstance(listed.outcome, ParkedShown):
        _end_by(listed, as_json)
        return
    shown = listed.outcome
    whys = {one.id: showing.why_not(one.identity, one.outcome) for one in said if one.exit is not Exit.DONE}
    if as_json:
        print_outcome(True, showing.each_document(deed, shown, whys, len(said)), lambda: "")
    elif not shown.rows:
        print_outcome(False, None, lambda: f"nothing is parked at {identity}")
    if shown.more:
        errors().print(f"mesh: {identity} has {shown.more} more, which were not looked at: run it again")
    exits = {one.exit for one in said}
    for code in (Exit.UNANSWERED, Exit.NOBODY, Exit.FAILED, Exit.PARTLY, Exit.REFUSED):
        if code in exits:
            raise typer.Exit(code)


def _one(deed: ParkedDeed, who: str, message: str, wait: float, as_json: bool, budget: float) -> None:
    said = run(_act_on_one(deed, _identity(who), message, wait, budget))
    if not isinstance(said.outcome, ParkedShown):
        _end_by(said, as_json)
        return
    outcome = said.outcome
    print_outcome(as_json, document_of(outcome), lambda: showing.acted(said.identity, outcome))
    if said.exit is not Exit.DONE:
        raise typer.Exit(said.exit)


def _end_by(said: Said, as_json: bool) -> None:
    if isinstance(said.outcome, Refused):
        refuse(as_json, f"{said.identity} {said.id}".strip(), said.outcome)
    if isinstance(said.outcome, Missing):
        raise Ended(said.exit, showing.why_not(said.identity, said.outcome))


# ------------------------------------------------------------------------------------------------ asking


async def _list(who: Identity | None, wait: float) -> list[Said]:
    async with asker_of(read_context(), wait) as (asker, address):
        if who is not None:
            return [await _act(asker, str(who), "list")]
        try:
            found = await asker.ask(Listeners(), budget=BUDGET)
        except Unanswered as unanswered:
            raise unanswered_by_the_controller(unanswered, address) from None
        return list(await asyncio.gather(*(_act(asker, one, "list") for one in found.value)))


async def _act_on_one(deed: ParkedDeed, who: Identity, message: str, wait: float, budget: float) -> Said:
    async with asker_of(read_context(), wait) as (asker, _):
        return await _act(asker, str(who), deed, message, budget)


async def _each(deed: ParkedDeed, who: Identity, wait: float, budget: float, quiet: bool) -> tuple[Said, Sequence[Said]]:
    """All that are listed now, each once. It ends with the first that gives no answer: whoever does not answer one answers no other."""
    said: list[Said] = []
    async with asker_of(read_context(), wait) as (asker, _):
        listed = await _act(asker, str(who), "list")
        if isinstance(listed.outcome, ParkedShown):
            for message in dict.fromkeys(row.id for row in listed.outcome.rows):
                said.append(await _act(asker, str(who), deed, message, budget))
                if not quiet:
                    _print_line(said[-1])
                if isinstance(said[-1].outcome, Missing):
                    break
    return listed, said


def _print_line(said: Said) -> None:
    outcome = said.outcome
    if isinstance(outcome, ParkedShown):
        shown: RenderableType = showing.acted(said.identity, outcome)
        print_outcome(False, None, lambda: shown)
    else:
        errors().print(f"mesh: {said.id}: {showing.why_not(said.identity, outcome)}")


async def _act(asker: Asker, who: str, deed: ParkedDeed, message: str = "", budget: float = BUDGET) -> Said:
    try:
        replies = await asker.ask_each(ParkedAct(act=deed, message=message), [who], budget)
    except Unanswered as unanswered:
        return Said(who, unanswered.missing[0], message)
    return Said(who, replies[who], message)


def _identity(written: str) -> Identity:
    try:
        return Identity.parse(written)
    except BadName as bad:
        raise Ended(Exit.USAGE, str(bad)) from None
