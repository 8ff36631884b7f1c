"""What every command does alike: ask within a bounded time, print the outcome, and end with an exit code of its own.

stdout holds the outcome alone; with ``--json`` it is one JSON document, also where there is no outcome.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console, RenderableType

from mesh_runtime.contracts import Refused, Tool
from mesh_runtime_operator import showing
from mesh_runtime_operator.asking import BUDGET, ask_controller
from mesh_runtime_operator.context import read_context
from mesh_runtime_operator.exits import WORDS, Ended, Exit

#: Codes of refusals that end the command in a way of their own.
_BY_CODE = {"unknown-machine": Exit.UNKNOWN_MACHINE, "nothing-to-do": Exit.NOTHING_TO_DO, "unsettled": Exit.PARTLY}
#: Seconds: a day, beyond which nobody waits for an answer.
LONGEST = 86_400

#: What ends the help of every command.
EPILOG = "\n\n".join(["Exit codes:", *(f"{code.value}: {words}" for code, words in WORDS.items())])

A = TypeVar("A")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else.")]
Wait = Annotated[
    float,
    typer.Option("--wait", metavar="S", min=0.1, max=LONGEST, help="Seconds to wait for the broker; never for ever."),
]


def run(work: Coroutine[Any, Any, A]) -> A:
    """Run one command's work to its end. Raises Ended (interrupted)."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise Ended(Exit.INTERRUPTED, WORDS[Exit.INTERRUPTED]) from None


def ask(question: Tool[A], wait: float, budget: float = BUDGET) -> A:
    """Ask the controller of the context's mesh. Raises Ended."""
    return run(ask_controller(read_context(), question, wait=wait, budget=budget))


def refuse(as_json: bool, whom: str, refused: Refused) -> NoReturn:
    """Print a refusal, and end by it."""
    if as_json:
        print_outcome(True, showing.as_json(refused), lambda: "")
    else:
        for line in showing.refusal(whom, refused):
            errors().print(line)
    raise typer.Exit(exit_of(refused))


def exit_of(refused: Refused) -> Exit:
    """How the command ends by this refusal."""
    return _BY_CODE.get(refused.code, Exit.REFUSED)


def print_outcome(as_json: bool, document: Any, shown: Callable[[], RenderableType]) -> None:
    """Print ``document`` as JSON, or what ``shown`` gives for people. Raises Ended if stdout takes no more."""
    try:
        if as_json:
            sys.stdout.write(json.dumps(document, indent=2) + "\n")
        else:
            # Whole lines: what reads this output must not meet a line that was broken to fit a terminal that is not there.
            Console(soft_wrap=not sys.stdout.isatty()).print(shown(), markup=False, highlight=False)
        sys.stdout.flush()
    except OSError as full:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer must not fail again at the exit
        raise Ended(Exit.UNWRITTEN, f"{WORDS[Exit.UNWRITTEN]}: {full.strerror or full}") from None


def errors() -> Console:
    """What writes lines to stderr."""
    return Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
