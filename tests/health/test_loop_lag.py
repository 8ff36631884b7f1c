"""What keeps the loop from turning is named while it does (B16)."""

import asyncio
import itertools
import logging
import queue
import subprocess
import sys
import threading
import time

from mesh_runtime.health.lag import Blocked, LoopLag


def blocking_handler(release: threading.Event) -> None:
    release.wait(10)


async def test_the_function_that_blocks_and_its_task_are_named_while_it_blocks() -> None:
    """The line whose removal makes this fail: `self._on_block(...)` in `LoopLag._watch`."""
    release = threading.Event()
    seen: queue.Queue[Blocked] = queue.Queue()

    def on_block(blocked: Blocked) -> None:
        seen.put(blocked)
        release.set()

    async def handle() -> None:
        blocking_handler(release)

    with LoopLag(on_block, threshold=0.1) as lag:
        await asyncio.create_task(handle(), name="ask overlay-peers.1 of networking@node-1")
    blocked = seen.get_nowait()
    assert blocked.function.startswith("blocking_handler (")
    assert blocked.task == "ask overlay-peers.1 of networking@node-1"
    assert blocked.seconds >= 0.1
    assert any("handle" in frame for frame in blocked.stack)
    assert lag.worst >= 0.05


async def test_code_of_the_standard_library_is_not_blamed_but_its_caller() -> None:
    seen: queue.Queue[Blocked] = queue.Queue()

    def careless() -> None:
        subprocess.run([sys.executable, "-c", "import time; time.sleep(0.6)"], check=True)

    with LoopLag(seen.put, threshold=0.2):
        careless()
    assert "careless" in seen.get_nowait().function


async def test_by_default_a_warning_names_it() -> None:
    release = threading.Event()
    records: list[logging.LogRecord] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)
            release.set()

    listening = Listening()
    logging.getLogger("mesh_runtime.health.lag").addHandler(listening)
    try:
        with LoopLag(threshold=0.1):
            blocking_handler(release)
    finally:
        logging.getLogger("mesh_runtime.health.lag").removeHandler(listening)
    assert records[0].levelno == logging.WARNING
    assert "blocked by blocking_handler (" in records[0].getMessage()


async def test_a_loop_that_turns_is_left_alone_and_nothing_stays_behind() -> None:
    seen: queue.Queue[Blocked] = queue.Queue()
    turned = asyncio.Event()
    with LoopLag(seen.put, threshold=1.0):
        asyncio.get_running_loop().call_later(1.5, turned.set)
        await turned.wait()
    assert seen.empty()
    assert not any(thread.name == "loop-lag" for thread in threading.enumerate())


async def test_a_long_block_is_told_again_only_when_its_length_has_doubled() -> None:
    told: list[float] = []
    with LoopLag(lambda blocked: told.append(blocked.seconds), threshold=0.05):
        began = time.monotonic()
        while time.monotonic() - began < 0.9:
            pass
    assert 2 <= len(told) <= 5
    assert all(later >= 2 * earlier for earlier, later in itertools.pairwise(told))
