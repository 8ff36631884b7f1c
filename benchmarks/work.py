"""The work that every system does: the same models, bodies and counts. One process is both sides; JSON is validated by pydantic on both.

Ask and reply: a body of about 300 bytes each way, one at a time and 64 in flight. Tells: 10,000 into a durable quorum queue, 256
unconfirmed at a time, then consumed, validated and acknowledged with a prefetch of 500 where a system lets one choose.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import BaseModel

ONE_AT_A_TIME, IN_FLIGHT, WINDOW, PREFETCH = 1000, 64, 256, 500
ASKS, TELLS, WARM = 5000, 10_000, 100


class Ask(BaseModel):
    """What is asked."""

    machine: str
    network: str
    generation: int
    labels: dict[str, str]


class Reply(BaseModel):
    """What is answered."""

    machine: str
    sections: dict[str, str]
    digest: str


LABELS = {f"k{i}": "v" * 8 for i in range(12)}
ASK = Ask(machine="node-a", network="overlay", generation=7, labels=LABELS)
REPLY = Reply(machine="node-a", sections={f"s{i}": "x" * 12 for i in range(8)}, digest="d" * 64)


@dataclass(frozen=True)
class Target:
    """The broker of a run: TLS under its own CA for every system."""

    host: str
    port: int
    vhost: str
    username: str
    password: str
    ca_file: str
    pin: str

    @property
    def url(self) -> str:
        """As aio-pika and FastStream take it."""
        return f"amqps://{self.username}:{self.password}@{self.host}:{self.port}/{self.vhost}?cafile={self.ca_file}"


async def asks(call: Callable[[], Awaitable[object]]) -> dict[str, float]:
    """Asks a second, one at a time and 64 in flight."""
    for _ in range(WARM):
        await call()
    started = time.perf_counter()
    for _ in range(ONE_AT_A_TIME):
        await call()
    one = ONE_AT_A_TIME / (time.perf_counter() - started)
    places = asyncio.Semaphore(IN_FLIGHT)

    async def place() -> None:
        async with places:
            await call()

    started = time.perf_counter()
    await asyncio.gather(*(place() for _ in range(ASKS)))
    return {"asks_one_at_a_time": one, "asks_64_in_flight": ASKS / (time.perf_counter() - started)}


async def tells(send: Callable[[], Awaitable[object]]) -> float:
    """Confirmed tells a second, 256 in flight."""
    window = asyncio.Semaphore(WINDOW)

    async def place() -> None:
        async with window:
            await send()

    started = time.perf_counter()
    await asyncio.gather(*(place() for _ in range(TELLS)))
    return TELLS / (time.perf_counter() - started)


class Counted:
    """Ends when all tells were handled; gives their rate since ``begin``."""

    def __init__(self) -> None:
        self.left = TELLS
        self.done = asyncio.Event()
        self.began = self.ended = 0.0

    def begin(self) -> None:
        """Consuming begins now."""
        self.began = time.perf_counter()

    def one(self) -> None:
        """One more was handled."""
        self.left -= 1
        if not self.left:
            self.ended = time.perf_counter()
            self.done.set()

    async def rate(self) -> float:
        """Wait for the last; handled tells a second."""
        async with asyncio.timeout(120):
            await self.done.wait()
        return TELLS / (self.ended - self.began)
