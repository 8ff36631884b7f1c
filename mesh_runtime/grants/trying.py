"""Calling what may fail in any way (an author's code, a ledger on a server that is down) and having its failure as a value, in words."""

import asyncio
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from mesh_runtime.asking.words import words_of
from mesh_runtime.contracts.outcomes import Refused
from mesh_runtime.logging import mask_text
from mesh_runtime.startup import Kind, StageFault
from mesh_runtime.tasks import attempt

log = structlog.stdlib.get_logger(__name__)

T = TypeVar("T")

#: Failures whose traceback this process has logged, the last ones: what is tried for ever would fill the log with one and the same.
_logged: deque[str] = deque(maxlen=64)


@dataclass(frozen=True, slots=True)
class Failed:
    """It was not done. ``why`` is masked; ``again`` says whether time may mend it. ``plain``: its author has not said which of the two."""

    code: str
    why: str
    again: bool = True
    plain: bool = False

    def refused(self) -> Refused:
        """The same as an answer."""
        return Refused(code=self.code, why=self.why, again=self.again)


class Fault(Exception):
    """An issuer cannot go on now, for the reason that it carries."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.why)
        self.failed = failed


async def trying(what: str, code: str, work: Awaitable[T], within: float) -> T | Failed:
    """What ``work`` returns, or how it failed. ``what`` names it in words, as ``PostgreSQL.make``; ``within`` is in seconds.

    A stage's fault keeps its own code and text. A cancellation goes through.
    """
    ended: list[T] = []
    limit = asyncio.timeout(within)

    async def bounded() -> None:
        async with limit:
            ended.append(await work)

    error = await attempt(bounded())
    if error is None:
        return ended[0]
    if limit.expired():
        return Failed(code, f"{what} did not end within {within:.1f} s", plain=True)
    if isinstance(error, Fault):
        return error.failed
    if isinstance(error, StageFault):
        return Failed(error.cause.code, mask_text(error.cause.text), again=error.cause.kind is Kind.WAITING)
    words = f"{what} raised {words_of(error)}"
    log.warning("a grant is held up", what=words, exc_info=None if words in _logged else error)
    _logged.append(words)
    return Failed(code, words, plain=True)
