"""Ends a link on which nothing was heard for two heartbeats.

The broker sends a heartbeat each half of the agreed time, so two full ones of silence are a dead link: a cable, a firewall, a frozen
machine. TCP says nothing in such a case for minutes. The watchdog looks twice: after a blocked loop it may run before the bytes that wait
in the kernel have been read.
"""

import asyncio

from mesh_runtime.broker.link import Link

#: Heartbeats of silence that are a loss, and seconds between the two looks.
SILENT_HEARTBEATS, SECOND_LOOK = 2.0, 0.2


class Watchdog:
    """Watches one link, from its making until ``stop``. ``heartbeat`` is in seconds."""

    def __init__(self, link: Link, heartbeat: float) -> None:
        self._link = link
        self._heartbeat = heartbeat
        self._limit = heartbeat * SILENT_HEARTBEATS
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(heartbeat / 2, self._look)
        self._fed = 0.0

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        try:
            self._judge()
        except BaseException as error:  # a session that nobody watches any more is over
            self._link.abort(f"the watchdog failed: {type(error).__name__}: {error}")
            raise

    def _judge(self) -> None:
        heard = self._link.heard
        silent_at = heard + self._limit
        now = self._loop.time()
        if now >= silent_at:
            self._timer = self._loop.call_later(SECOND_LOOK, self._look_again, heard)
            return
        if heard > self._fed:  # aiormq watches too, but sees none of our channels' frames
            self._fed = now
            self._link.feed_heartbeat()
        self._timer = self._loop.call_later(min(self._heartbeat / 2, silent_at - now), self._look)

    def _look_again(self, heard: float) -> None:
        if self._link.heard != heard:
            self._look()
            return
        silence = self._loop.time() - heard
        self._link.abort(f"no byte from {self._link.address} for {silence:.1f} s (heartbeat {self._heartbeat:g} s)")
