"""Reports that are waited for: each push waits for the report of its own generation, and the report may come before the wait begins."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mesh_runtime.contracts import Report


@dataclass(slots=True)
class Awaited:
    """One wait. ``said`` is what the host told meanwhile about a declaration that it could not even number."""

    report: asyncio.Future[Report]
    said: list[str] = field(default_factory=list)


class AwaitedReports:
    """Wakes whoever waits for a machine's report of one generation."""

    def __init__(self) -> None:
        self._waits: dict[tuple[str, int, int], Awaited] = {}

    @contextmanager
    def expecting(self, machine: str, epoch: int, generation: int) -> Iterator[Awaited]:
        """Take the report of this generation, from now on; to be entered before the declaration is told."""
        key = machine, epoch, generation
        awaited = self._waits[key] = Awaited(asyncio.get_running_loop().create_future())
        try:
            yield awaited
        finally:
            del self._waits[key]
            awaited.report.cancel()

    def came(self, report: Report) -> None:
        """A report was stored."""
        awaited = self._waits.get((report.machine, report.epoch, report.generation))
        if awaited is not None and not awaited.report.done():
            awaited.report.set_result(report)
        if report.verdict == "refused" and report.generation == 0:
            for (machine, _, _), one in self._waits.items():
                if machine == report.machine:
                    one.said.append(report.why)
