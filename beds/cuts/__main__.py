"""``python -m beds.cuts``: kill -9 between every two steps of issue, rotate and revoke. What must hold afterwards stands in ``invariants``.

Each operation is performed uncut, and its steps are recorded. Then it is performed once for each step, and one of the four parties is
killed there: which one is drawn by the seed, so that each is as often a victim; with ``--all`` each of them at each step.

Exit 0: all held. 1: something did not. 130: told to end; what was done is shown.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import time

import psycopg

from beds.cuts.invariants import Invariants
from beds.cuts.operations import OPERATIONS, Operations
from beds.cuts.plan import Cut, Wish, plan
from beds.cuts.rig import Rig
from beds.cuts.steps import VICTIMS, Step
from beds.cuts.told import Told, say
from beds.recording import StepFailed
from mesh_runtime.contracts import Unanswered
from mesh_runtime.startup import StageFault
from mesh_runtime.testing.installation import NoBroker
from mesh_runtime.testing.postgres import NoPostgres
from mesh_runtime.testing.supervised import ServerFailed

#: Seconds for one operation with all that belongs to it, and how many may fail before it ends.
LIMIT, FAILURES = 420.0, 12
#: Lines of each runtime that are shown, with ``--logs``, where something failed.
LINES = 400
#: Times that a step is waited for which does not come: sessions and looks are not as many in each run.
TRIES = 3

#: What says that something does not hold, or cannot be done.
FAULTS = (StepFailed, AssertionError, TimeoutError, Unanswered, ServerFailed, psycopg.Error, StageFault, OSError)


class Bed:
    """One run of it, over as many rigs as failures make necessary."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.told = Told(options.seed)
        self._wish = Wish(options.sample, options.all, options.step, options.victim)
        self._recorded: dict[str, list[Step]] = {}
        self._left: list[Cut] = []

    async def run(self) -> None:
        """Record, then cut. What fails is shown, and a new mesh is founded for the rest."""
        say(f"seed {self.options.seed}")
        while len(self.told.failed) < FAILURES:
            async with Rig() as rig:
                if await self._on(rig):
                    return

    async def _on(self, rig: Rig) -> bool:
        """Whether all was done on this rig."""
        operations = Operations(rig)
        invariants = Invariants(rig, operations)
        try:
            if not self._recorded:
                for operation in self.options.operations:
                    if not await self._record(operations, invariants, operation):
                        return True
                self._left = plan(self._recorded, self._wish, self.options.seed)
            while self._left:
                if not await self._cut(operations, invariants, self._left.pop(0)):
                    return False
            await self._one(operations, invariants, "", None)
        finally:
            self.told.replayed += invariants.replayed
            self.told.rows += len(rig.load.confirmed & invariants.written)
        return True

    async def _record(self, operations: Operations, invariants: Invariants, operation: str) -> bool:
        """Perform it uncut, and take down its steps; whether all held. In a whole run twice: a sweep is in the longer."""
        found: list[list[Step]] = []
        for _ in range(1 if self.options.sample else 2):
            begun = time.monotonic()
            if await self._one(operations, invariants, operation, None) is None:
                return False
            found.append(list(operations.rig.watch.seen))
            say(f"{operation}: {len(found[-1])} steps, {time.monotonic() - begun:.1f} s")
        self._recorded[operation] = min(found, key=len)
        self.told.steps[operation] = [str(one) for one in self._recorded[operation]]
        return True

    async def _cut(self, operations: Operations, invariants: Invariants, cut: Cut) -> bool:
        """Perform it with this cut, again if the step does not come; whether all held."""
        begun, came = time.monotonic(), None
        for _ in range(TRIES):
            if (came := await self._one(operations, invariants, cut.operation, cut)) is None:
                return False
            if came:
                break
        (self.told.done if came else self.told.missed).append(cut)
        self.told.slowest = max(self.told.slowest, operations.took)
        count = f"{operations.took:.1f} of {time.monotonic() - begun:.1f} s; {len(self.told.done)} done, {len(self._left)} left"
        say(f"{'ok' if came else 'this step did not come'}: {cut} ({count})")
        return True

    async def _one(self, operations: Operations, invariants: Invariants, operation: str, cut: Cut | None) -> bool | None:
        """One operation; whether its cut came, None if something did not hold. Without an operation: all is granted, and written."""
        runtimes = operations.rig.lab.everybody
        for runtime in runtimes.values():
            runtime.logs.lines.clear()
        try:
            async with asyncio.timeout(LIMIT):
                await operations.prepare(operation, invariants.keep_rows, invariants.nothing_lost)
                if not operation:
                    return False
                came = await operations.perform(operation, cut.step if cut else None, cut.victim if cut else "")
                await invariants.hold(operation)
                if cut is None:
                    await invariants.shown_to_operators()
        except FAULTS as failed:
            why = f"{type(failed).__name__}: {failed}"
            self.told.failed.append((cut or operation or "the end", why))
            say(f"FALSE: {self.told.failed[-1][0]}: {why}")
            for name, runtime in runtimes.items():
                for line in runtime.logs.lines[-LINES:] if self.options.logs else ():
                    say(f"    {name} | {line.text[:600]}")
            return None
        return came


def main() -> int:
    """Carry out the command line; the exit code."""
    options = _options()
    try:
        return asyncio.run(_run(options))
    except (NoBroker, NoPostgres) as missing:
        print(f"beds.cuts: {missing}", file=sys.stderr)
        return 1


async def _run(options: argparse.Namespace) -> int:
    bed = Bed(options)
    loop, told_to_end = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told_to_end.set)
    running, ending = asyncio.create_task(bed.run()), asyncio.create_task(told_to_end.wait())
    await asyncio.wait([running, ending], return_when=asyncio.FIRST_COMPLETED)
    for one in (running, ending):
        one.cancel()
    await asyncio.wait([running, ending])
    for line in bed.told.summary():
        say(line)
    if options.json:
        print(json.dumps(bed.told.document(), indent=2))
    if told_to_end.is_set():
        return 130
    running.result()
    return 1 if bed.told.failed or not bed.told.done else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m beds.cuts", description="kill -9 between every two steps of a grant.")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="draws order and victims; default: drawn")
    parser.add_argument("--sample", type=int, default=0, metavar="K", help="only the first K cuts of the drawn order")
    parser.add_argument("--all", action="store_true", help="every party at every step, instead of one at each")
    parser.add_argument("--operation", dest="operations", action="append", choices=OPERATIONS, help="only this one (repeatable)")
    parser.add_argument("--step", default="", metavar="STEP", help="only this step, as it was printed")
    parser.add_argument("--victim", default="", choices=VICTIMS, help="only this party")
    parser.add_argument("--logs", action="store_true", help="show the last lines of every runtime where something failed")
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    options = parser.parse_args()
    options.operations = options.operations or list(OPERATIONS)
    return options


if __name__ == "__main__":
    sys.exit(main())
