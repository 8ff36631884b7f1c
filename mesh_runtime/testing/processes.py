"""Runtimes as operators start them, and as tests and beds do: as processes, by the console script or with another class in its place.

A process that is started here does not outlive this one: the kernel ends it should its parent be killed. Its start is *ordered*, so that
starts which nobody ordered can be counted (``restarts``).
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from mesh_runtime.runtime import ModuleRuntime
from mesh_runtime.testing.logs import LINE_LIMIT, Logs
from mesh_runtime.testing.states import States

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)

#: Seconds that a runtime may take to stop before it is killed: above what the library allows for work under way.
STOPS_WITHIN = 12.0

_OF_A_CLASS = (
    "import sys; from {place} import {name} as chosen; from mesh_runtime.entrypoint import command; "
    "sys.exit(command({module!r}, ['run'], cls=chosen))"
)


def script(module: str) -> list[str]:
    """The command of an installed module: its console script, from where this Python's own scripts stand."""
    return [str(Path(sys.executable).with_name(f"mesh-runtime-{module}")), "run"]


def program_of(cls: type[ModuleRuntime]) -> list[str]:
    """A command that runs another class in the place of ``cls.module``'s own. Raises TypeError unless it stands at the top of its file."""
    if "." in cls.__qualname__ or cls.__module__ == "__main__":
        raise TypeError(f"{cls.__module__}:{cls.__qualname__} cannot be imported by another process: put it at the top of a file")
    return [sys.executable, "-c", _OF_A_CLASS.format(place=cls.__module__, name=cls.__qualname__, module=cls.module)]


class RuntimeProcess:
    """One runtime as a process of its own. It may be started again after its end."""

    def __init__(self, environment: Mapping[str, str], command: Sequence[str]) -> None:
        """``environment`` holds the variables ``MESH_*``; of this process's own, those are left out."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MESH_")}
        self.environment = {**inherited, "MESH_LOG_LEVEL": "debug", **environment}
        self.command = list(command)
        self.logs = Logs()
        self.states = States(Path(environment["MESH_STATE_DIR"]))
        self.ordered_starts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._following: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process's id; raises RuntimeError if it was never started."""
        if self._process is None:
            raise RuntimeError("it was never started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self._process is not None and self._process.returncode is None

    @property
    def exit_code(self) -> int | None:
        """How it ended; negative: by that signal."""
        return None if self._process is None else self._process.returncode

    @property
    def restarts(self) -> int:
        """Starts that its state directory counts and nobody ordered."""
        return self.states.starts - self.ordered_starts

    async def start(self, command: Sequence[str] | None = None) -> Self:
        """Start it; ``command`` replaces the program from now on."""
        if self.running:
            raise RuntimeError(f"process {self.pid} still runs")
        self.command = list(command or self.command)
        self.ordered_starts += 1
        self._process = process = await asyncio.create_subprocess_exec(
            *self.command,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT,
            start_new_session=True,  # a terminal's interrupt is for the one who started it, who stops it in order
            preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
        )
        self._following = asyncio.get_running_loop().create_task(self._follow(process), name=f"output of {self.command[0]}")
        return self

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        await asyncio.gather(self.logs.follow("stdout", process.stdout), self.logs.follow("stderr", process.stderr))

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it lives."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def stop(self, within: float = STOPS_WITHIN) -> int:
        """End it as an engine does (SIGTERM; SIGKILL after ``within`` seconds) and return its exit code."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            return await self.ended(within)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            return await self.ended(within)

    async def kill(self) -> int:
        """End it at once."""
        self.signal(signal.SIGKILL)
        return await self.ended(STOPS_WITHIN)

    async def ended(self, within: float) -> int:
        """Wait for its end and its last line; returns its exit code. Raises TimeoutError."""
        if self._process is None:
            return 0
        async with asyncio.timeout(within):
            code = await self._process.wait()
            if self._following is not None:
                await self._following
        return code

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()
