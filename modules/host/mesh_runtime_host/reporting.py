"""Tells each report until it has been heard: what a host found out must reach its controller, however long the broker is away.

Reports wait in the process, the newest of each subject; nothing is told twice on purpose, and a repeat is harmless. One that no message can
hold is told as a failure without its elements: it must not stand in the way of all others, nor pass for a machine that holds nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import uuid4

import structlog

from mesh_runtime import TooLarge
from mesh_runtime.contracts import Report
from mesh_runtime.contracts.declaring import Verdict
from mesh_runtime.tasks import attempt
from mesh_runtime.telling import NotSent, SendUnknown

log = structlog.stdlib.get_logger(__name__)

#: Seconds before a report that could not be told is told again.
PAUSE = 1.0
#: Reports that wait at once; beyond it the oldest is dropped, and said.
MOST_WAITING = 64
#: Characters of the reason of a report that was cut.
WHY_LIMIT = 4000

#: What a report is about: epoch, generation, and whether it is the verdict on it or what stands.
Subject = tuple[int, int, str]
Heard = Callable[[Report], Awaitable[None]]


@dataclass(slots=True)
class _Waiting:
    report: Report
    heard: Heard | None
    message_id: str = field(default_factory=lambda: uuid4().hex)


class Reporter:
    """Holds the reports that were not heard yet, and tells them in turn."""

    def __init__(self, tell: Callable[[Report, str], Awaitable[object]], pause: float = PAUSE) -> None:
        self._tell = tell
        self._pause = pause
        self._waiting: dict[Subject, _Waiting] = {}
        self._some = asyncio.Event()
        self._said = ""

    def put(self, report: Report, heard: Heard | None = None) -> None:
        """Tell `report`, in place of an older one of its subject that still waits; call `heard` once it was confirmed."""
        subject = subject_of(report)
        waiting = self._waiting.get(subject)
        if waiting is not None and waiting.report == report.model_copy(update={"number": waiting.report.number}):
            waiting.report = report  # the same seen again, later
            return
        self._waiting[subject] = _Waiting(report, heard)
        if len(self._waiting) > MOST_WAITING:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            log.error("a report is dropped: too many wait to be told", epoch=oldest[0], generation=oldest[1], verdict=oldest[2])
        self._some.set()

    async def run(self) -> None:
        """Tell for ever."""
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                subject, waiting = next(iter(self._waiting.items()))
                if not await self._told(waiting):
                    await asyncio.sleep(self._pause)
                    continue
                if self._waiting.get(subject) is waiting:
                    del self._waiting[subject]
                if waiting.heard is not None:
                    await waiting.heard(waiting.report)

    async def _told(self, waiting: _Waiting) -> bool:
        error = await attempt(self._tell(waiting.report, waiting.message_id))
        if error is None:
            self._said = ""
            return True
        if isinstance(error, TooLarge) and (shorter := _shortened(waiting.report, error)) != waiting.report:
            log.error("a report is too large to be told: it goes without its elements", error=str(error))
            waiting.report = shorter
        words = f"{type(error).__name__}: {error}" if not isinstance(error, SendUnknown) else "it is unknown whether it arrived"
        if words != self._said:
            self._said = words
            unexpected = None if isinstance(error, NotSent | SendUnknown | TooLarge) else error
            log.warning("a report could not be told yet", verdict=waiting.report.verdict, error=words, exc_info=unexpected)
        return False


def _shortened(report: Report, error: TooLarge) -> Report:
    if not report.elements:  # a refusal may name all that it would have taken away
        return report.model_copy(update={"why": report.why[:WHY_LIMIT]})
    many = f"{len(report.elements)} elements are too many for one message ({error})"
    why = f"what stands cannot be told, {many}; {report.verdict}: {report.why}"
    verdict: Verdict = "refused" if report.verdict == "refused" else "failed"
    return report.model_copy(update={"verdict": verdict, "elements": (), "why": why[:WHY_LIMIT]})


def subject_of(report: Report) -> Subject:
    """A verdict and what stands are two subjects of one generation."""
    return report.epoch, report.generation, "standing" if report.verdict == "standing" else "verdict"
