"""The live table: each runtime's stage and cause, as its own socket shows them, for as long as the bed runs.

Where stderr is no terminal, each change becomes a line of the timeline instead.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from rich.live import Live
from rich.table import Table
from rich.text import Text

from beds.recording import Record
from mesh_runtime.testing.processes import RuntimeProcess

#: Seconds between two looks at what the states have recorded.
EVERY = 0.1

_COLOURS = {"ready": "green", "waiting": "yellow", "starting": "yellow", "blocked": "red", "gone": "red", "draining": "yellow"}


@asynccontextmanager
async def watching(record: Record, runtimes: Mapping[str, RuntimeProcess]) -> AsyncIterator[None]:
    """Show the runtimes while the context lasts."""
    if record.console.is_terminal:
        with Live(get_renderable=lambda: _table(runtimes), console=record.console, refresh_per_second=8, transient=True):
            yield
        return
    telling = asyncio.get_running_loop().create_task(_tell_changes(record, runtimes), name="table")
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


def _table(runtimes: Mapping[str, RuntimeProcess]) -> Table:
    table = Table("runtime", "state", "stage", "attempts", "cause", box=None)
    for name, runtime in runtimes.items():
        last = runtime.states.last
        state = str(last["state"]) if last else "gone"
        cause = (last or {}).get("cause") or {}
        table.add_row(
            name,
            Text(state, _COLOURS.get(state, "")),
            str(last["stage"]) if last else "",
            str(last["attempts"]) if last else "",
            Text(str(cause.get("text", "")), overflow="ellipsis", no_wrap=True),
        )
    return table


async def _tell_changes(record: Record, runtimes: Mapping[str, RuntimeProcess]) -> None:
    told = dict.fromkeys(runtimes, 0)
    while True:
        for name, runtime in runtimes.items():
            for seen in runtime.states.history[told[name] :]:
                record.say(f"{name}: {seen}", "dim")
            told[name] = len(runtime.states.history)
        await asyncio.sleep(EVERY)
