"""The command ``mesh``: what operators say to the controller, and what the runtimes of this machine say of themselves.

stdout holds the outcome (with ``--json``: one JSON document and nothing else, also where there is no outcome), stderr what went wrong.
Each way of ending has an exit code of its own (``exits``). Nothing here decides anything about the mesh: acts are asks,
answered by the controller.
"""

import sys
from typing import Annotated

import typer

from mesh_runtime.contracts.operating import Place, Placed, Plan, Planned, Push, Pushed, Remove, Removed
from mesh_runtime.logging import configure
from mesh_runtime_operator import grants, parked, showing
from mesh_runtime_operator.acting import EPILOG, LONGEST, Json, Wait, ask, errors, print_outcome, refuse
from mesh_runtime_operator.asking import BUDGET
from mesh_runtime_operator.context import read_context
from mesh_runtime_operator.exits import WORDS, Ended, Exit
from mesh_runtime_operator.parameters import BadParameter, read_key, read_parameters
from mesh_runtime_operator.status import read_states

_BY_VERDICT = {"refused": Exit.REFUSED, "failed": Exit.FAILED, "unheard": Exit.UNHEARD}

app = typer.Typer(
    help="Says what the mesh shall be, and shows what it is. MESH_CONTEXT names the directory of the mesh's context.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Machines = Annotated[list[str] | None, typer.Argument(metavar="[MACHINE]...", help="Only these machines. None: all that have placements.")]


@app.command(epilog=EPILOG)
def status(as_json: Json = False) -> None:
    """Show what each runtime of this machine says of itself: state, stage, cause, since, attempts."""
    context = read_context()
    try:
        states = read_states(context.state_root)
    except OSError as error:
        raise Ended(Exit.UNREADABLE, f"the state root {context.state_root} cannot be read: {error.strerror or error}") from None
    print_outcome(as_json, {"runtimes": states}, lambda: showing.states_table(states))


@app.command(epilog=EPILOG)
def place(
    module: Annotated[str, typer.Argument(metavar="MODULE", help="The module to place.")],
    machine: Annotated[str, typer.Argument(metavar="MACHINE", help="The machine to place it on.")],
    parameters: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="KEY=@FILE takes a file's content.")] = None,
    key: grants.KeyFile = None,
    wait: Wait = 10.0,
    as_json: Json = False,
) -> None:
    """Record that MODULE is placed on MACHINE; the next push gives it effect. `mesh place store MACHINE address=HOST:PORT ca=FILE`."""
    try:
        read, recorded = read_parameters(module, parameters or []), "" if key is None else read_key(key)
    except BadParameter as bad:
        raise Ended(Exit.USAGE, str(bad)) from None
    placed = ask(Place(module=module, machine=machine, parameters=read, key=recorded), wait)
    if isinstance(placed, Placed):
        how = f"is placed, at revision {placed.revision}" if placed.changed else f"is so already, at revision {placed.revision}"
        print_outcome(as_json, showing.as_json(placed), lambda: f"{module}@{machine} {how}; a push gives it effect")
    else:
        refuse(as_json, f"{module}@{machine}", placed)


@app.command(epilog=EPILOG)
def remove(
    module: Annotated[str, typer.Argument(metavar="MODULE", help="The module whose placement ends.")],
    machine: Annotated[str, typer.Argument(metavar="MACHINE", help="The machine that it is placed on.")],
    wait: Wait = 10.0,
    as_json: Json = False,
) -> None:
    """End a placement; the next push gives it effect."""
    removed = ask(Remove(module=module, machine=machine), wait)
    if isinstance(removed, Removed):
        words = f"{module}@{machine} is ended, at revision {removed.revision}; a push gives it effect"
        print_outcome(as_json, showing.as_json(removed), lambda: words)
    else:
        refuse(as_json, f"{module}@{machine}", removed)


@app.command(epilog=EPILOG)
def plan(machines: Machines = None, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Show what a push would change, compared with what the machines report, and a fingerprint for `mesh push --plan`."""
    planned = ask(Plan(machines=tuple(machines or ())), wait)
    if isinstance(planned, Planned):
        print_outcome(as_json, showing.as_json(planned), lambda: showing.planned(planned))
        if any(one.refused is not None for one in planned.machines):
            raise typer.Exit(Exit.REFUSED)
    else:
        refuse(as_json, showing.names(machines or ()), planned)


@app.command(epilog=EPILOG)
def push(
    machines: Machines = None,
    fingerprint: Annotated[str, typer.Option("--plan", metavar="FINGERPRINT", help="Refuse if anything moved since that plan.")] = "",
    going: Annotated[list[str] | None, typer.Option("--remove", metavar="ELEMENT", help="Your word that this element is to go.")] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", min=0.1, max=LONGEST, help="Seconds to wait for the machines' reports.")
    ] = 30.0,
    wait: Wait = 10.0,
    as_json: Json = False,
) -> None:
    """Give the placements effect, and wait for what each machine reports. Exit 0 only if all that was asked is in force."""
    act = Push(machines=tuple(machines or ()), plan=fingerprint, remove=tuple(going or ()), patience=timeout)
    pushed = ask(act, wait, timeout + BUDGET)
    if isinstance(pushed, Pushed):
        print_outcome(as_json, showing.as_json(pushed), lambda: showing.pushed(pushed))
        raise typer.Exit(verdict_of(pushed))
    refuse(as_json, showing.names(machines or ()), pushed)


for _command in (grants.grants, grants.rotate, grants.revoke, grants.rekey):
    app.command(epilog=EPILOG)(_command)
app.add_typer(parked.app, name="parked")


def verdict_of(pushed: Pushed) -> Exit:
    """The exit of a push: the worst of its machines' outcomes."""
    if not pushed.machines:
        return Exit.NOTHING_TO_DO
    verdicts = {one.verdict for one in pushed.machines}
    return next((code for verdict, code in _BY_VERDICT.items() if verdict in verdicts), Exit.DONE)


def main() -> None:
    """Run the command of this process; never returns."""
    configure("console", "critical", sys.stderr)
    as_json = "--json" in sys.argv[1:]  # a command line that is wrong is read by nobody else
    try:
        app()
    except Ended as ended:
        errors().print(f"mesh: {ended}")
        if as_json and ended.code != Exit.UNWRITTEN:
            print_outcome(True, showing.ended(ended.code, str(ended)), lambda: "")
        sys.exit(ended.code)
    except SystemExit as left:
        if as_json and left.code == Exit.USAGE:  # told by typer, on stderr
            print_outcome(True, showing.ended(Exit.USAGE, WORDS[Exit.USAGE]), lambda: "")
        raise
