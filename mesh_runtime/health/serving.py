"""Serves the process's state on a unix socket in its state directory: one JSON document per connection, then the end.

That the loop answers *is* the sign of life; nothing outside the process has a part in it, so it holds through any wait. The
socket is only for its owner (mode 0600), and takes the place of one that an earlier process left behind. There is no request to
read, so there is none to be malformed.
"""

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

from mesh_runtime.health.check import SOCKET
from mesh_runtime.logging import masked

Snapshot = Callable[[], Mapping[str, Any]]


@asynccontextmanager
async def serve_state(directory: Path, snapshot: Snapshot) -> AsyncIterator[None]:
    """Answer each connection with what `snapshot()` returns at that moment, for as long as the context lasts.

    `snapshot` is called in the event loop. Registered secrets are masked in what it returns (a cause may quote an error), and what
    JSON does not know is shown as text. If the call raises, that connection gets no document and the loop's exception handler is
    told. Makes the directory if it is missing (mode 0700). Raises OSError if the socket cannot be made.
    """
    open_now: set[asyncio.BaseTransport] = set()
    descriptor = _opened(directory)
    try:
        listening, inode = _bound(descriptor)
        made = asyncio.get_running_loop().create_unix_server(lambda: _Answer(snapshot, open_now), sock=listening, start_serving=False)
        server = await made  # at once: it waits only when it starts
        try:
            await server.start_serving()
            yield
        finally:
            server.close()
            for transport in list(open_now):
                transport.close()
            _remove_own(descriptor, inode)
    finally:
        os.close(descriptor)


class _Answer(asyncio.Protocol):
    def __init__(self, snapshot: Snapshot, open_now: set[asyncio.BaseTransport]) -> None:
        self._snapshot = snapshot
        self._open_now = open_now
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._open_now.add(transport)
        try:
            document = json.dumps(masked(dict(self._snapshot())))
            cast("asyncio.Transport", transport).write(document.encode() + b"\n")
        finally:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._open_now.discard(self._transport)


def _opened(directory: Path) -> int:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The address of a unix socket holds 107 bytes: by the directory's descriptor a path of any length can be bound.
    return os.open(directory, os.O_PATH | os.O_DIRECTORY)


def _bound(descriptor: int) -> tuple[socket.socket, int]:
    """Return a listening socket in the directory, and its inode.

    It is bound under a name of its own and then renamed, so that at no moment the name `state` is missing, stands with another
    mode, or belongs to nobody who listens.
    """
    own = f".{SOCKET}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.unlink(own, dir_fd=descriptor)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listening.bind(f"/proc/self/fd/{descriptor}/{own}")
        os.chmod(own, stat.S_IRUSR | stat.S_IWUSR, dir_fd=descriptor)
        listening.listen(64)
        inode = os.stat(own, dir_fd=descriptor).st_ino
        os.rename(own, SOCKET, src_dir_fd=descriptor, dst_dir_fd=descriptor)
    except OSError:
        listening.close()
        raise
    return listening, inode


def _remove_own(descriptor: int, inode: int) -> None:
    """Remove the socket, unless another process has put its own in its place meanwhile."""
    with suppress(FileNotFoundError):
        if os.stat(SOCKET, dir_fd=descriptor, follow_symlinks=False).st_ino == inode:
            os.unlink(SOCKET, dir_fd=descriptor)
