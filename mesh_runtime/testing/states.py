"""*states*: what a runtime says of itself on its socket, now and over time; and waiting for a state with a deadline.

It reads the same socket that ``health`` and ``mesh status`` read, so a test sees what an operator would. Nothing blocks the loop: the
runtime that is asked may live in this very process.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mesh_runtime.health.check import SOCKET
from mesh_runtime.health.starts import count_starts

Snapshot = dict[str, Any]

#: Seconds that a runtime whose loop turns needs at most to answer on a loaded machine.
ANSWERS_WITHIN = 2.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One state that was seen: at ``at`` (``time.monotonic``) for the first time in a row. ``code`` is the cause's, or empty."""

    at: float
    state: str
    stage: str
    code: str

    def __str__(self) -> str:
        return f"{self.state}/{self.stage}" + (f" ({self.code})" if self.code else "")


async def read_snapshot(directory: Path) -> Snapshot | None:
    """What the process whose state directory this is says of itself; nothing if nobody answers there."""
    try:
        descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        async with asyncio.timeout(ANSWERS_WITHIN):
            reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{descriptor}/{SOCKET}")
            try:
                text = await reader.read()
            finally:
                writer.close()
    except OSError:
        return None
    finally:
        os.close(descriptor)
    try:
        snapshot = json.loads(text)
    except ValueError:
        return None
    return snapshot if isinstance(snapshot, dict) else None


class States:
    """The states of one runtime, by its state directory. With ``async with`` it looks all the time and remembers each change."""

    def __init__(self, directory: Path, every: float = 0.02) -> None:
        """``every`` is how often it looks, in seconds."""
        self.directory = directory
        self.history: list[Seen] = []
        self.last: Snapshot | None = None
        """What was seen last; nothing while nobody answers."""
        self._every = every
        self._watching: asyncio.Task[None] | None = None

    @property
    def starts(self) -> int:
        """How often a process has started on this directory, as the processes counted it themselves."""
        return count_starts(self.directory)

    async def now(self) -> Snapshot | None:
        """Look once."""
        self.last = snapshot = await read_snapshot(self.directory)
        cause = (snapshot or {}).get("cause") or {}
        seen = (str(snapshot["state"]), str(snapshot["stage"]), str(cause.get("code", ""))) if snapshot else ("gone", "", "")
        if not self.history or (self.history[-1].state, self.history[-1].stage, self.history[-1].code) != seen:
            self.history.append(Seen(time.monotonic(), *seen))
        return snapshot

    async def until(self, condition: Callable[[Snapshot], bool], what: str = "", *, within: float = 10.0) -> Snapshot:
        """The first state for which ``condition`` holds. Raises AssertionError with the history, ``within`` seconds from now."""
        deadline = time.monotonic() + within
        while True:
            snapshot = await self.now()
            if snapshot is not None and condition(snapshot):
                return snapshot
            if time.monotonic() > deadline:
                passed = " -> ".join(map(str, self.history[-12:])) or "nothing"
                raise AssertionError(
                    f"{self.directory.name}: {what or condition} did not come true within {within:g} s; seen: {passed}; last: {snapshot}"
                )
            await asyncio.sleep(self._every)

    async def until_ready(self, within: float = 10.0) -> Snapshot:
        """Wait until it is ready."""
        return await self.until(lambda one: one["ready"] is True, "ready", within=within)

    async def until_at(self, stage: str, state: str = "", code: str = "", *, within: float = 10.0) -> Snapshot:
        """Wait until it stands at ``stage`` (``reach``), in ``state`` (``waiting``), with the cause's ``code``; empty is any."""

        def stands(one: Snapshot) -> bool:
            cause = one["cause"] or {}
            return one["stage"] == stage and state in ("", one["state"]) and code in ("", cause.get("code"))

        return await self.until(stands, f"{state or 'any state'} at {stage} {code}".strip(), within=within)

    async def __aenter__(self) -> Self:
        self._watching = asyncio.get_running_loop().create_task(self._watch(), name=f"states of {self.directory.name}")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await self.now()
            await asyncio.sleep(self._every)
