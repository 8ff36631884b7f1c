"""``python -m beds list`` and ``python -m beds run NAME [--json] [--hold] [--break STEP] [--broker-rootfs DIR]``.

Exit 0: every step is true. 1: one is not. 2: wrong usage. With ``--json`` stdout holds one JSON document; all else is on stderr.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from beds import first_light
from beds.first_light import STEPS, FirstLight
from beds.lab import Lab
from beds.recording import Record
from beds.table import watching
from mesh_runtime.testing.founding import MODULES
from mesh_runtime.testing.installation import Installation, NoBroker
from mesh_runtime.testing.postgres import NoPostgres

BEDS = {first_light.NAME: STEPS}


def main() -> int:
    """Carry out the command line; the exit code."""
    options = _options()
    if options.command == "list":
        for name, steps in BEDS.items():
            print(f"{name}: {', '.join(steps)}")
        return 0
    try:
        return asyncio.run(_run(options))
    except (NoBroker, NoPostgres) as missing:
        print(f"beds: {missing}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m beds", description="End-to-end scenarios on real processes and a real broker.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="list the beds and their steps")
    run = commands.add_parser("run", help="run a bed")
    run.add_argument("bed", choices=sorted(BEDS))
    run.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    run.add_argument("--hold", action="store_true", help="bring the mesh up, print how to use it, and keep it until SIGINT or SIGTERM")
    run.add_argument(
        "--break",
        dest="broken",
        action="append",
        default=[],
        choices=STEPS,
        metavar="STEP",
        help="really break this step's part (repeatable)",
    )
    run.add_argument("--broker-rootfs", metavar="DIR", type=Path, help="run the RabbitMQ of the Debian in this directory (needs root)")
    options = parser.parse_args()
    if options.command == "run" and options.hold and options.broken:
        run.error("--hold keeps a mesh that is whole: it does not go with --break")
    return options


async def _run(options: argparse.Namespace) -> int:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    # Where nobody looks at a terminal, lines are whole.
    record = Record(Console(stderr=True, width=None if sys.stderr.isatty() else 200))
    async with Lab(MODULES, Installation(options.broker_rootfs)) as lab:
        bed = FirstLight(lab, record, options.broken)
        async with watching(record, lab.everybody):
            finished = await _unless_told(bed.bring_up() if options.hold else bed.run(), told)
        if options.hold and finished and _all_true(record):
            await bed.place_networking()
            _tell_how(bed, sys.stderr if options.json else sys.stdout)
            await told.wait()
        if told.is_set():
            record.say("told to end: taking everything down", "bold")
        runtimes, grantees = bed.runtimes(), bed.grantees()
        await bed.finish()
    record.summary(runtimes | grantees)
    if not finished:
        return 130
    if options.json:
        print(json.dumps({"runtimes": runtimes, "grantees": grantees, "steps": record.steps}, indent=2))
    return 0 if _all_true(record) else 1


async def _unless_told(work: Coroutine[Any, Any, object], told: asyncio.Event) -> bool:
    """Whether the work was done before the bed was told to end; what it raised is raised."""
    running, ending = asyncio.ensure_future(work), asyncio.ensure_future(told.wait())
    await asyncio.wait([running, ending], return_when=asyncio.FIRST_COMPLETED)
    done = running.done()
    for one in (running, ending):
        one.cancel()
    await asyncio.gather(running, ending, return_exceptions=True)
    if done:
        running.result()
    return done


def _tell_how(bed: FirstLight, out: TextIO) -> None:
    """What there is, as a shell takes it. On stdout unless that is kept for the JSON document."""
    lab = bed.lab
    lines = [
        "# The mesh is up. It ends with this command (SIGINT or SIGTERM).",
        f"# machine {lab.founded.machine}, mesh {lab.founded.mesh}, broker {lab.broker.address}, management {lab.broker.management_url}",
        *(f"# {name}: pid {one.pid}, state {lab.founded.state_dir(name)}" for name, one in lab.runtimes.items()),
        f"# broker: pids {', '.join(map(str, lab.broker.pids))}",
        f"# files of the machine: {lab.founded.host_root}",
        f"# every login's username and password: {lab.founded.directory / 'credentials'}",
        f"# a store's CA to place: mesh place store {lab.founded.machine} address=store.mesh:5000 ca={bed.any_store_ca()}",
        f"export MESH_CONTEXT={lab.founded.context}",
    ]
    print("\n".join(lines), file=out, flush=True)


def _all_true(record: Record) -> bool:
    return all(step["ok"] for step in record.steps.values())


if __name__ == "__main__":
    sys.exit(main())
