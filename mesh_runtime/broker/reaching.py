"""Stage *reach*: a TCP connection to whichever address stands first.

A SYN that is dropped is sent again by the kernel after 1, 3 and 7 seconds, so that a route that comes up may go unnoticed for seconds.
Here each address gets a fresh SYN each second while older attempts live on, at most three at a time; an address that refuses is asked
again at the next second as long as another is still open. It ends when one stands, when every address has refused, or at the deadline.
"""

import asyncio
import errno
import os
import socket

from mesh_runtime.broker.resolving import SockAddress, Target
from mesh_runtime.startup import PACES, Stage, StageFault, waiting

#: Seconds between two SYNs to one address, and between the first SYNs to two addresses of which the earlier is preferred.
AGAIN, STAGGER = 1.0, 0.1
#: Attempts at one address that may be open at the same time; the oldest gives way.
OPEN_AT_ONCE = 3


def spell(address: SockAddress) -> str:
    """An address as people write it."""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def reach(targets: list[Target], unresolved: list[str], deadline: float | None = None) -> tuple[socket.socket, Target]:
    """The first socket that stands, and where it leads. All other attempts are closed, also if this is cancelled.

    Raises StageFault (waiting) with every address and what came of it.
    """
    race = _Race(targets)
    limit = PACES[Stage.REACH].deadline if deadline is None else deadline
    try:
        target = await race.run(limit)
    except TimeoutError:
        raise _fault(targets, race.reasons, unresolved, limit) from None
    finally:
        await race.stop()
    return race.taken(), target


class _Race:
    def __init__(self, targets: list[Target]) -> None:
        self.targets = targets
        self.reasons: dict[Target, OSError] = {}
        self._open: dict[asyncio.Task[socket.socket], Target] = {}
        self._winner: socket.socket | None = None

    async def run(self, limit: float) -> Target:
        """Where the winner leads, or TimeoutError at the limit or once all have refused."""
        loop = asyncio.get_running_loop()
        stagger = min(STAGGER, limit / (2 * len(self.targets)))
        start = loop.time()
        due = {target: start + place * stagger for place, target in enumerate(self.targets)}
        while True:
            now = loop.time()
            if now >= start + limit:
                raise TimeoutError
            for target in self.targets:
                if due[target] <= now:
                    self._knock(target)
                    due[target] = now + AGAIN
            await asyncio.wait(self._open, timeout=min(start + limit, *due.values()) - now, return_when=asyncio.FIRST_COMPLETED)
            refused = False
            for task in [task for task in self._open if task.done()]:
                if task.cancelled():  # it gave way to a fresher one
                    del self._open[task]
                    continue
                error = task.exception()
                if error is None:
                    self._winner = task.result()
                    return self._open[task]
                target = self._open.pop(task)
                if not isinstance(error, OSError):
                    raise error
                self.reasons[target] = error
                refused = True
            if not self._open and len(self.reasons) == len(self.targets):
                raise TimeoutError
            if refused:  # the next address need not wait for its place in the row
                for target in self.targets:
                    if target not in self.reasons and target not in self._open.values():
                        due[target] = loop.time()
                        break

    def _knock(self, target: Target) -> None:
        same = [task for task, other in self._open.items() if other == target]
        if len(same) >= OPEN_AT_ONCE:
            same[0].cancel()
        task = asyncio.get_running_loop().create_task(_connect(target), name=f"reach {spell(target[1])}")
        self._open[task] = target

    def taken(self) -> socket.socket:
        """The winner's socket, which is the caller's from now on."""
        if self._winner is None:
            raise RuntimeError("nobody has won yet")
        return self._winner

    async def stop(self) -> None:
        """Close every attempt but the winner; and the winner too if this is cancelled."""
        for task in self._open:
            task.cancel()
        kept = None
        try:
            if self._open:
                await asyncio.wait(self._open)
            kept = self._winner
        finally:
            for task in self._open:
                if task.done() and not task.cancelled() and task.exception() is None and task.result() is not kept:
                    task.result().close()
            self._open.clear()


async def _connect(target: Target) -> socket.socket:
    family, address = target
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:  # also a cancellation: nobody has the socket yet
        made.close()
        raise
    return made


_CODES = {
    errno.ECONNREFUSED: "refused",
    errno.EHOSTUNREACH: "no-route",
    errno.ENETUNREACH: "no-route",
    errno.ENETDOWN: "no-route",
    errno.EADDRNOTAVAIL: "no-route",
    errno.ETIMEDOUT: "silent",
}


def _fault(targets: list[Target], reasons: dict[Target, OSError], unresolved: list[str], limit: float) -> StageFault:
    words, codes = [], []
    for target in targets:
        error = reasons.get(target)
        if error is None:
            codes.append("silent")
            words.append(f"{spell(target[1])} did not answer within {limit:g} s")
        else:
            codes.append(_CODES.get(error.errno or 0, "unreachable"))
            words.append(f"{spell(target[1])}: {os.strerror(error.errno) if error.errno else error}")
    code = codes[0] if len(set(codes)) == 1 else "unreachable"
    return waiting(Stage.REACH, code, "; ".join(words + unresolved), ", ".join(spell(address) for _, address in targets))
