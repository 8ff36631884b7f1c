"""Real breakages, each undone at its end: what ``--break STEP`` does to a step's part, to show that the step would see it."""

import asyncio
import shutil
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mesh_runtime.testing.postgres import SUPERUSER, PrivatePostgres
from mesh_runtime.testing.processes import RuntimeProcess


@asynccontextmanager
async def port_held(port: int) -> AsyncIterator[None]:
    """Somebody else listens on the port of the broker: connections are accepted and get no byte."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
        holder.listen(64)
        yield


@asynccontextmanager
async def frozen(runtime: RuntimeProcess) -> AsyncIterator[None]:
    """The process stands still (SIGSTOP), as on a machine that hangs."""
    runtime.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        runtime.signal(signal.SIGCONT)


@asynccontextmanager
async def ended(runtime: RuntimeProcess) -> AsyncIterator[None]:
    """The runtime is ended, so that nobody answers in its place; it is started again, in order, and ready at the end."""
    await runtime.stop()
    try:
        yield
    finally:
        await runtime.start()
        await runtime.states.until_ready()


@asynccontextmanager
async def directory_in_place_of(path: Path) -> AsyncIterator[None]:
    """A directory that is not empty stands where the file is to be."""
    await asyncio.to_thread(path.unlink, missing_ok=True)
    occupant = path / "somebody's"
    await asyncio.to_thread(occupant.mkdir, parents=True)
    try:
        yield
    finally:
        await asyncio.to_thread(shutil.rmtree, path)


@asynccontextmanager
async def read_only_for_the_issuer(postgres: PrivatePostgres) -> AsyncIterator[None]:
    """The server takes no change from whoever logs in as the issuer does from now on, as a standby does; consumers write on."""
    await asyncio.to_thread(postgres.query, f"ALTER ROLE {SUPERUSER} SET default_transaction_read_only = on")
    try:
        yield
    finally:
        undo = f"BEGIN; SET TRANSACTION READ WRITE; ALTER ROLE {SUPERUSER} RESET default_transaction_read_only; COMMIT"
        await asyncio.to_thread(postgres.query, undo)
