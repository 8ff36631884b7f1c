"""What the kit's private servers have alike: a directory of their own, a process that watches theirs, and an end whatever happens.

A server outlives neither its test run nor the directory that it needs: the supervisor ends it with this process, and a small second process
removes the directory, also while no server runs.
"""

import asyncio
import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from mesh_runtime.testing import supervise

_SWEEP = 'cat >/dev/null; for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$1"; [ -e "$1" ] || exit 0; sleep 0.5; done'

#: Seconds after SIGSTOP within which the last thread must stand.
FREEZE_LIMIT = 5.0


class ServerFailed(Exception):
    """A private server did not do what it was told. The message carries the end of its log."""


class Supervised:
    """One private server. A subclass says what it is and how it starts; all methods block, and each is bounded.

    A start in one thread may be met by an end in another: whoever cancels the start of a bed ends its servers too.
    """

    what: ClassVar[str]
    """Its name in words."""
    failed: ClassVar[type[ServerFailed]]
    """What is raised of it."""
    stop_limit: ClassVar[float]
    """Seconds that it may take to end before it is ended by force."""

    def __init__(self, directory: Path) -> None:
        """``directory`` is its own, and goes with it."""
        self.directory = directory
        self._sweeper = subprocess.Popen(["sh", "-c", _SWEEP, "sweep", str(directory)], stdin=subprocess.PIPE, start_new_session=True)
        atexit.register(self.dispose)
        self._launching = threading.Lock()
        self._disposed = False
        self._running: _Running | None = None

    @property
    def running(self) -> bool:
        """Whether its process lives; a paused one does."""
        return self._running is not None and self._running.supervisor.poll() is None

    @property
    def pids(self) -> list[int]:
        """The process that watches it and the server's own first one, while it runs."""
        return [self._running.supervisor.pid, self._running.server] if self._running and self.running else []

    def start(self) -> None:
        """Start it, and return once it serves. Raises ``failed``."""
        raise NotImplementedError

    def kill(self) -> None:
        """End it at once (SIGKILL), with all its processes; data is kept as the crash left it."""
        self._signal(signal.SIGKILL)
        self._end()

    def dispose(self) -> None:
        """End it and remove its directory. What is disposed of cannot be started again."""
        with self._launching:
            self._disposed = True
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        with self._sweeper:  # ends its input, and waits for its end
            pass
        atexit.unregister(self.dispose)

    async def __aenter__(self) -> Self:
        """Start it, in a thread. Told to stop meanwhile, or without success, it is disposed of."""
        try:
            await asyncio.to_thread(self.start)
        except BaseException:  # also a cancellation: its thread goes on starting it, and no end of the context will come
            with contextlib.suppress(ServerFailed):  # what is raised already says more
                await asyncio.to_thread(self.dispose)  # whoever was told to start it has not got it
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self.dispose)

    def _launch(self, programs: Sequence[dict[str, Any]]) -> None:
        """Start these programs under a supervisor, in order; the last is named ``server``."""
        with self._launching:
            if self._disposed:
                raise self.failed(f"{self.what} was disposed of, and cannot be started again")
            supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", supervise.__file__, json.dumps(programs), str(self.directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=self.directory,
                start_new_session=True,
            )
            assert supervisor.stdout is not None
            try:
                started = supervisor.stdout.readline()
                if not started:
                    raise self.failed(f"{self.what} was not started: its supervisor ended with {supervisor.wait(self.stop_limit)}")
                self._running = _Running(supervisor, json.loads(started)["started"]["server"])
            except BaseException:  # an interrupt too: nobody else knows this supervisor, nor could end it
                supervisor.terminate()
                with supervisor:
                    pass
                raise

    def _signal(self, number: signal.Signals, pids: Iterable[int] | None = None) -> None:
        """Send it to the server's own first process, or to ``pids``; to none that has ended."""
        for pid in self.pids[1:] if pids is None else pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _freeze(self, pids: Sequence[int] | None = None) -> None:
        """Stop them (SIGSTOP), and return once no thread of theirs runs: the signal alone lets them work a little longer."""
        pids = self.pids[1:] if pids is None else pids
        self._signal(signal.SIGSTOP, pids)
        what = f"stop all threads of {', '.join(map(str, pids))} after SIGSTOP"
        self._wait_until(lambda: not any(_runs(pid) for pid in pids), FREEZE_LIMIT, what, every=0.001)

    def _wait_until(self, condition: Callable[[], bool], limit: float, what: str, every: float = 0.05) -> None:
        """Look every ``every`` seconds. Raises ``failed``, with its last words, if it ends or ``limit`` seconds are over before."""
        deadline = time.monotonic() + limit
        while not condition():
            if not self.running:
                raise self.failed(f"{self.what} ended before it could {what}\n{self._last_words()}")
            if time.monotonic() > deadline:
                raise self.failed(f"{self.what} did not {what} within {limit:g} s\n{self._last_words()}")
            time.sleep(every)  # blocking, as start and pause are: what is waited for here sends no event

    def _last_words(self) -> str:
        """The end of its log; each kind of server has its own."""
        raise NotImplementedError

    def _end(self) -> None:
        """Wait for the server's end, then for its supervisor's; take it down by force after a limit."""
        if (running := self._running) is None:
            return
        with running.supervisor as supervisor:
            try:
                supervisor.wait(self.stop_limit)
            except subprocess.TimeoutExpired:
                os.kill(running.server, signal.SIGKILL)
                supervisor.wait(self.stop_limit)
                raise self.failed(f"{self.what} had to be killed: it did not stop within {self.stop_limit:g} s") from None


def _runs(pid: int) -> bool:
    """Whether a thread of this process is neither stopped nor at its end."""
    try:
        states = {task.joinpath("stat").read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()}
    except OSError:  # it or the thread has ended meanwhile; what still is there is seen at the next look
        return Path(f"/proc/{pid}").exists()
    return not states <= set("TtZX")


@dataclass(frozen=True, slots=True)
class _Running:
    """A server that was started: known whole, or not at all."""

    supervisor: subprocess.Popen[bytes]
    server: int
