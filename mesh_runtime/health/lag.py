"""Finds what keeps the event loop from turning, while it does.

A blocked loop can send no heartbeat and answer no health check, and afterwards nobody knows who it was. So a thread looks on: when
the loop has not turned for `threshold` seconds, it takes the stack of the loop's thread as it stands and names the function that
blocks, and the task that runs it. It never interrupts anything.
"""

import asyncio
import logging
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Self

_logger = logging.getLogger(__name__)

THRESHOLD = 1.0
"""Seconds without a turn of the loop after which it counts as blocked."""

_STDLIB = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "<frozen "})
_PACKAGES = ("/site-packages/", "/dist-packages/")


@dataclass(frozen=True, slots=True)
class Blocked:
    """What blocked the loop: the function that somebody wrote, the task that runs it, for how many seconds already, the stack."""

    function: str
    task: str
    seconds: float
    stack: tuple[str, ...]


def _warn(blocked: Blocked) -> None:
    _logger.warning(
        "the event loop is blocked by %s",
        blocked.function,
        extra={"task": blocked.task, "seconds": round(blocked.seconds, 1), "frames": blocked.stack},
    )


class LoopLag:
    """Watches the running loop from a thread of its own, from `start` to `stop`; or use it as a context manager.

    `on_block` is called *in the watching thread* when the loop has been blocked for `threshold` seconds, and again each time
    that span has doubled. By default it logs a warning.
    """

    def __init__(
        self,
        on_block: Callable[[Blocked], None] = _warn,
        *,
        threshold: float = THRESHOLD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_block = on_block
        self._threshold = threshold
        self._interval = threshold / 4
        self._clock = clock
        self._turned = clock()
        self._worst = 0.0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def worst(self) -> float:
        """The longest span without a turn that was seen so far, in seconds."""
        return max(self._worst, self._clock() - self._turned - self._interval)

    def start(self) -> None:
        """Begin to watch the running loop."""
        loop = asyncio.get_running_loop()
        self._turned = self._clock()
        self._beat(loop)
        self._thread = threading.Thread(target=self._watch, args=(loop, threading.get_ident()), name="loop-lag", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the watch; its thread has ended when this returns."""
        if self._timer is not None:
            self._timer.cancel()
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self._clock()
        self._worst = max(self._worst, now - self._turned - self._interval)
        self._turned = now
        self._timer = loop.call_later(self._interval, self._beat, loop)

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        report_at = self._threshold
        while not self._over.wait(self._interval):
            turned = self._turned
            seconds = self._clock() - turned
            if seconds < self._threshold:
                report_at = self._threshold
            elif seconds >= report_at:
                frame = sys._current_frames().get(thread)
                # The loop may have turned while the stack was taken; then it is the stack of something innocent.
                if frame is not None and self._turned == turned:
                    self._on_block(_blocked(frame, loop, seconds))
                    report_at = seconds * 2


def _blocked(frame: FrameType, loop: asyncio.AbstractEventLoop, seconds: float) -> Blocked:
    frames = [each for each, _ in traceback.walk_stack(frame)]
    # The innermost frame outside the standard library: `subprocess.run` blocks in a selector, but somebody called it.
    written = next((each for each in frames if not _is_stdlib(each.f_code.co_filename)), frame)
    task = asyncio.current_task(loop)
    return Blocked(
        function=f"{written.f_code.co_qualname} ({written.f_code.co_filename}:{written.f_lineno})",
        task=task.get_name() if task is not None else "",
        seconds=seconds,
        stack=tuple(f"{each.f_code.co_filename}:{each.f_lineno} in {each.f_code.co_qualname}" for each in reversed(frames)),
    )


def _is_stdlib(file: str) -> bool:
    # The packages of a system's Python lie inside its standard library's folder.
    return file.startswith(_STDLIB) and not any(folder in file for folder in _PACKAGES)
