"""The fixture that fails a test which leaves something behind: tasks, sockets, processes, errors that nobody saw.

It is there for every test of an environment in which this plugin is installed. What a test started it ends; what ends
within three seconds after the test was on its way and is no leak.
"""

import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from mesh_runtime.testing.shared import shared_pids

_MASKING = "mesh_runtime.logging.masking"

GRACE = 3.0
"""Seconds within which what the test left on its way must have ended."""


@dataclass(frozen=True)
class Holdings:
    """What this process holds at one moment."""

    tasks: frozenset[asyncio.Task[Any]]
    sockets: frozenset[str]
    children: frozenset[int]

    @classmethod
    def now(cls) -> "Holdings":
        """Look, from inside a running loop. The looking task itself does not count."""
        current = asyncio.current_task()
        return cls(
            frozenset(task for task in asyncio.all_tasks() if task is not current),
            frozenset(_sockets()),
            frozenset(_children()),
        )

    def beyond(self, before: "Holdings", exempt: set[int]) -> list[str]:
        """Describe what is held now and was not held before."""
        sockets, children = self.sockets - before.sockets, self.children - before.children - exempt
        return [
            *(f"task {task.get_name()}: {task.get_coro()}" for task in self.tasks - before.tasks if not task.done()),
            *(f"socket {_describe(link)}" for link in sockets),
            *(f"process {pid}: {_command(pid)}" for pid in children),
        ]


@pytest_asyncio.fixture(autouse=True)
async def _nothing_left_behind(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    unseen: list[str] = []
    loop.set_exception_handler(lambda _, context: unseen.append(_describe_error(context)))
    before = Holdings.now()
    secrets = _registered()
    yield
    if (masking := sys.modules.get(_MASKING)) is not None:  # else each record of a long run would be searched for the secrets of all tests
        masking.process_masker.forget_all_but(secrets)
    deadline = time.monotonic() + GRACE
    while left := Holdings.now().beyond(before, shared_pids(request.config)):
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.01)
    gc.collect()  # an exception that was never retrieved is told when its task is collected
    loop.set_exception_handler(None)
    problems = [*(f"left behind: {what}" for what in left), *(f"seen by nobody: {what}" for what in unseen)]
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def _registered() -> frozenset[str]:
    """The secrets that are masked now. The library is not loaded for it: a test may be about a library that cannot be."""
    masking = sys.modules.get(_MASKING)
    known: frozenset[str] = frozenset() if masking is None else masking.process_masker.values
    return known


def _sockets() -> list[str]:
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            link = str(descriptor.readlink())
        except FileNotFoundError:
            continue
        if link.startswith("socket:"):
            links.append(link)
    return links


def _children() -> list[int]:
    pids: list[int] = []
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended since; its children are another's now
            pids += map(int, file.read_text().split())
    return pids


def _describe(link: str) -> str:
    for connection in psutil.Process().net_connections("all"):
        try:
            if str(Path(f"/proc/self/fd/{connection.fd}").readlink()) == link:
                return f"{connection.laddr} -> {connection.raddr} {connection.status}"
        except FileNotFoundError:
            continue
    return link


def _command(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline()[:6])
    except psutil.Error:
        return "ended meanwhile"


def _describe_error(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {context.get('exception')!r}"
