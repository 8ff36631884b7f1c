"""A hundred cuts of the link with asks and tells under way: nothing is lost silently, and nothing is left behind.

A ledger at each end holds the id of every ask and every tell: what was asked and how it ended, what arrived and was handled. Cuts come at
moments drawn from a seed, which is printed; ``MESH_TEST_SEED`` sets it.
"""

import asyncio
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from mesh_runtime import Contract, Found, Lookup, ModuleRuntime, NotSent, SendUnknown, Tell, Unanswered, answers, told
from mesh_runtime.runtime import climbing
from mesh_runtime.testing.gate import Gate
from mesh_runtime.testing.running import Running, Runtimes
from mesh_runtime.testing.waiting import until
from tests.raw import standing_in

CUTS = 100
IN_FLIGHT = 32
SEED = int(os.environ.get("MESH_TEST_SEED") or random.SystemRandom().randrange(10**6))


class Echoed(Contract):
    number: int


class Echo(Lookup[Found[Echoed]], answered_by="mirror"):
    number: int


class Kept(Tell):
    number: int


class Mirror(ModuleRuntime):
    """Answers after a moment, so that there are always asks in flight; its ledger holds what arrived."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # passed on as they come
        self.answered: Counter[int] = Counter()
        self.kept: Counter[int] = Counter()

    @answers(Echo)
    async def echo(self, ask: Echo) -> Found[Echoed]:
        self.answered[ask.number] += 1
        await asyncio.sleep(0.002)
        return Found(value=Echoed(number=ask.number), revision=1)

    @told(Kept)
    async def keep_it(self, tell: Kept) -> None:
        self.kept[tell.number] += 1


class Looker(ModuleRuntime):
    tells = (Kept,)


@dataclass
class Ledger:
    """The asker's: every ask and tell by its number, and how it ended."""

    asked: dict[int, str] = field(default_factory=dict)
    told: dict[int, str] = field(default_factory=dict)
    in_flight: set[int] = field(default_factory=set)
    hit: set[int] = field(default_factory=set)
    """In flight at a cut."""
    numbers: int = 0

    def next(self) -> int:
        self.numbers += 1
        return self.numbers

    async def ask_on(self, looker: Running, mirror: Running, over: asyncio.Event) -> None:
        while not over.is_set():
            if not (looker.state.ready and mirror.state.ready):
                await asyncio.sleep(0.005)
                continue
            number = self.next()
            self.asked[number] = "open"
            self.in_flight.add(number)
            try:
                found = await looker.module.ask(Echo(number=number), budget=2.0)
                assert found.value.number == number
                self.asked[number] = "answered"
            except Unanswered as unanswered:
                self.asked[number] = str(unanswered.reasons[0])
            finally:
                self.in_flight.discard(number)

    async def tell_on(self, looker: Running, over: asyncio.Event) -> None:
        """Each tell until it is confirmed, under one id: what its sender may do with an unknown outcome."""
        while not over.is_set():
            number = self.next()
            self.told[number] = "open"
            while True:
                try:
                    await looker.module.tell(Kept(number=number), message_id=f"kept-{number}", budget=5.0)
                    self.told[number] = "confirmed"
                    break
                except (NotSent, SendUnknown) as failed:
                    self.told[number] = type(failed).__name__
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.01)


def climbed_again(runtimes: tuple[Running, ...], sessions: tuple[int, ...]) -> bool:
    return all(one.state.sessions > before for one, before in zip(runtimes, sessions, strict=True))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def at_the_broker(runtimes: Runtimes) -> tuple[Counter[str], dict[str, int]]:
    """Connections by login, and consumers by queue without the session's digits."""
    connections = Counter(row["user"] for row in await runtimes.management.connections(runtimes.vhost))
    queues = await runtimes.management.queues(runtimes.vhost)
    return connections, {row["name"]: row.get("consumers", -1) for row in queues if not row["name"].startswith("parked.")}


@pytest.mark.timeout(600)  # a hundred re-climbs of two runtimes, about a second each on a busy machine
async def test_a_hundred_cuts_lose_nothing_silently(
    runtimes: Runtimes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(climbing, "STOOD", 0.0)  # each cut is met at once: at which pace so many would be is another test's
    draw = random.Random(SEED)
    ledger, over = Ledger(), asyncio.Event()
    async with Gate(runtimes.broker.ports.amqps) as gate:
        runtimes.port = gate.port
        async with runtimes.run(Mirror) as mirror, runtimes.run(Looker, "beta") as looker:
            await mirror.ready()
            await looker.ready()
            tasks_before, descriptors_before = len(asyncio.all_tasks()), descriptors()
            began = time.monotonic()
            asking = [asyncio.create_task(ledger.ask_on(looker, mirror, over)) for _ in range(IN_FLIGHT)]
            telling = asyncio.create_task(ledger.tell_on(looker, over))
            for cut in range(CUTS):
                await until(
                    lambda: mirror.state.ready and looker.state.ready and len(ledger.in_flight) >= IN_FLIGHT, f"cut {cut}", within=10
                )
                await asyncio.sleep(draw.uniform(0.01, 0.3))  # the moment of the cut: not a wait for anything
                await until(lambda: len(ledger.in_flight) == IN_FLIGHT, "asks are in flight", within=10, every=0.001)
                sessions = looker.state.sessions, mirror.state.sessions
                hit = set(ledger.in_flight)
                assert len(hit) == IN_FLIGHT, f"cut {cut} hit {len(hit)} asks in flight"
                ledger.hit |= hit
                gate.cut()
                await until(partial(climbed_again, (looker, mirror), sessions), f"up after cut {cut}", within=15)
            took = time.monotonic() - began
            over.set()
            await asyncio.gather(*asking, telling)
            confirmed = {number for number, how in ledger.told.items() if how == "confirmed"}
            await until(lambda: confirmed <= mirror.module.kept.keys(), "every confirmed tell is handled", within=15)

            ends = Counter(ledger.asked.values())
            between = [how for number, how in ledger.asked.items() if number not in ledger.hit]
            share = between.count("answered") / len(between)
            with capsys.disabled():
                print(  # noqa: T201 - the numbers that this test is about
                    f"\nseed {SEED}: {CUTS} cuts in {took:.1f} s, {len(ledger.asked)} asks {dict(ends)}, {len(ledger.hit)} hit by a cut, "
                    f"{share:.1%} of the {len(between)} between cuts answered, {len(confirmed)} tells, "
                    f"{sum(mirror.module.kept.values()) - len(mirror.module.kept)} handled again"
                )
            assert "open" not in ends
            assert set(ledger.told.values()) == {"confirmed"}
            answered = {number for number, how in ledger.asked.items() if how == "answered"}
            assert answered <= mirror.module.answered.keys(), "an ask was answered that never arrived"
            assert max(mirror.module.answered.values()) == 1, "an ask was handled twice"
            assert share >= 0.9

            async def as_at_the_start() -> bool:
                connections, consumers = await at_the_broker(runtimes)
                return connections == {"mirror@alpha": 1, "looker@beta": 1} and set(consumers.values()) == {1} and len(consumers) == 5

            await until(as_at_the_start, "one connection a runtime, one consumer a queue", within=10, every=0.2)
            await until(
                lambda: len(asyncio.all_tasks()) <= tasks_before and descriptors() <= descriptors_before,
                f"{tasks_before} tasks and {descriptors_before} descriptors, now {len(asyncio.all_tasks())} and {descriptors()}",
            )
            assert await standing_in(runtimes, "mirror@alpha", "parked.mirror@alpha") == 0
