"""Reports that are waited for: each push waits for the report of its own generation, and the report may come before the wait begins."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from mesh_runtime.contracts import Report


class AwaitedReports:
    """Wakes whoever waits for a machine's report of one generation."""

    def __init__(self) -> None:
        self._waits: dict[tuple[str, int, int], asyncio.Future[Report]] = {}

    @contextmanager
    def expecting(self, machine: str, epoch: int, generation: int) -> Iterator[asyncio.Future[Report]]:
        """Take the report of this generation, from now on; to be entered before the declaration is told."""
        key = machine, epoch, generation
        future = self._waits[key] = asyncio.get_running_loop().create_future()
        try:
            yield future
        finally:
            del self._waits[key]
            future.cancel()

    def came(self, report: Report) -> None:
        """A report was stored."""
        future = self._waits.get((report.machine, report.epoch, report.generation))
        if future is not None and not future.done():
            future.set_result(report)
