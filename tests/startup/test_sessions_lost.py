"""A session that is lost is over: the stages are climbed again, by one recovery, to one connection and one consumer a queue."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest

from mesh_runtime import Found, answers
from mesh_runtime.testing.gate import Gate, Mode
from mesh_runtime.testing.running import Running, Runtimes
from mesh_runtime.testing.waiting import until
from tests.parts import Noted, Pupil, Sage, Weather, WeatherAt

HEARTBEAT = 2
CYCLES = 10


class Counting(Sage):
    """Counts how often each place was asked for."""

    module = "sage"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.asked: Counter[str] = Counter()

    @answers(WeatherAt)
    async def weather(self, ask: WeatherAt) -> Found[Weather]:
        """Always found."""
        self.asked[ask.place] += 1
        return Found(value=Weather(sky="clear"), revision=7)


@dataclass
class Link:
    """A counting sage behind a gate, and a pupil who asks it past the gate."""

    runtimes: Runtimes
    gate: Gate
    sage: Running
    pupil: Running
    seen: list[bool] = field(default_factory=list)
    """What ``ready`` of the sage has been, change by change."""

    async def asked_together(self, count: int, what: str) -> None:
        """So many different asks; each is answered, and was handled once."""
        asks = [WeatherAt(place=f"{what} {number}") for number in range(count)]
        outcomes = await self.pupil.module.ask(*asks, budget=10)
        assert [one.value.sky for one in outcomes] == ["clear"] * count
        assert {self.sage.module.asked[ask.place] for ask in asks} == {1}

    async def consumers(self) -> Counter[str]:
        """Consumers a queue of the sage, as the broker lists them, whatever the session.

        Those of a quorum queue that was deleted stay in its list for a while, without a channel.
        """
        rows = [row for row in await self.runtimes.management.consumers(self.runtimes.vhost) if row["channel_details"]]
        names = [str(row["queue"]["name"]) for row in rows if ".sage@alpha" in row["queue"]["name"]]
        return Counter(name.replace(self._session(name), "HEX") for name in names)

    @staticmethod
    def _session(name: str) -> str:
        return next((part for part in name.split(".") if len(part) == 32), "no session")

    async def queue(self, start: str) -> str:
        """The name of the sage's queue that begins so."""
        rows = await self.runtimes.management.queues(self.runtimes.vhost)
        return str(next(row["name"] for row in rows if row["name"].startswith(start)))

    async def connections(self) -> list[str]:
        """The sage's connections at the broker."""
        return [row["name"] for row in await self.runtimes.management.connections(self.runtimes.vhost) if row.get("user") == "sage@alpha"]


ONE_EACH = {"replies.sage@alpha.HEX": 1, "asks.sage@alpha.HEX.tool": 1, "asks.sage@alpha.HEX.lookup": 1, "tells.sage@alpha": 1}
#: Connections; channels (declares, replies, tools, lookups, confirmed publishes, tells); consumers a queue.
ONE_OF_EACH = (1, 6, ONE_EACH)


@asynccontextmanager
async def linked(runtimes: Runtimes) -> AsyncIterator[Link]:
    runtimes.heartbeat = HEARTBEAT
    async with Gate(runtimes.broker.ports.amqps) as gate:
        runtimes.port = gate.port
        async with runtimes.run(Counting) as sage:
            runtimes.port = 0
            async with runtimes.run(Pupil, "beta") as pupil:
                await sage.ready()
                await pupil.ready()
                link = Link(runtimes, gate, sage, pupil)
                sage.state.listen(lambda state: link.seen.append(state.ready))
                yield link


async def restart(link: Link) -> None:
    await asyncio.to_thread(link.runtimes.broker.stop)
    await asyncio.to_thread(link.runtimes.broker.start)


async def cut(link: Link) -> None:
    link.gate.cut()


async def freeze_and_cut(link: Link) -> None:
    await link.gate.become(Mode.FREEZE)
    ends = asyncio.get_running_loop().time() + 3 * HEARTBEAT
    await until(lambda: asyncio.get_running_loop().time() >= ends, within=5 * HEARTBEAT)
    await link.gate.become(Mode.PASS)
    link.gate.cut()


def delete(start: str) -> Callable[[Link], Awaitable[None]]:
    """By the server itself: an exclusive queue can be deleted by nobody else."""

    async def deleted(link: Link) -> None:
        name = f'rabbit_misc:r(<<"{link.runtimes.vhost}">>, queue, <<"{await link.queue(start)}">>)'
        act = f'rabbit_amqqueue:with({name}, fun(Q) -> rabbit_amqqueue:delete(Q, false, false, <<"operator">>) end).'
        await asyncio.to_thread(link.runtimes.broker.evaluate, act)

    deleted.__name__ = f"queue deleted: {start}"
    return deleted


async def closed_by_operator(link: Link) -> None:
    names = await until(link.connections, "the broker lists the connection", within=5)
    await link.runtimes.management.close_connection(names[0])


FAULTS = [cut, freeze_and_cut, delete("asks."), delete("replies.sage"), delete("tells.sage"), closed_by_operator, restart]


@pytest.mark.timeout(60)  # the broker restarts in one of them
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_b12_after_each_loss_it_consumes_again_and_was_not_ready_in_between(
    runtimes: Runtimes, fault: Callable[[Link], Awaitable[None]]
) -> None:
    """B12: reconnected, the log looks fine, zero consumers.

    Removal: mesh_runtime/runtime/wiring.py: self._session.abort(words)
    Assertion: was_unready
    """
    async with linked(runtimes) as link:
        await link.asked_together(3, "before")
        await fault(link)
        try:
            was_unready = await until(lambda: False in link.seen, within=15)
        except AssertionError:
            was_unready = False
        assert was_unready
        await link.sage.ready(within=20)
        await link.pupil.ready(within=20)
        await link.asked_together(20, "after")
        await link.pupil.module.tell(Noted(id=1))
        await until(lambda: link.sage.module.noted == [1], "the tell is handled")
        assert await until(lambda: _is(link.consumers, ONE_EACH), "one consumer a queue", within=15)
        assert link.sage.state.sessions == 2, "one loss, one recovery"


async def _is(function: Callable[[], Awaitable[object]], wanted: object) -> bool:
    return await function() == wanted


@pytest.mark.timeout(120)  # ten reconnections, a stop and a start of the broker, and 15 s in which nothing may come back
async def test_b14_ten_cuts_leave_one_of_each_and_what_is_stopped_stays_stopped(runtimes: Runtimes) -> None:
    """B14: two recovery mechanisms, two consumers.

    Removal: mesh_runtime/runtime/climbing.py: raise _Lost(await self._over(session))
    Assertion: link.sage.state.sessions == CYCLES + 1
    """
    async with linked(runtimes) as link:
        await _settled(link, ONE_OF_EACH)
        held = _held_here()
        for cycle in range(CYCLES):
            link.gate.cut()
            await until(partial(_recovered, link, cycle + 2), f"cycle {cycle}", within=15)
        await link.sage.ready()
        loop = asyncio.get_running_loop()
        settled = loop.time() + 1.5
        await until(lambda: loop.time() >= settled, "a while in which nothing more may happen")
        assert link.sage.state.sessions == CYCLES + 1
        seen = await _settled(link, ONE_OF_EACH)
        assert seen == ONE_OF_EACH
        assert await until(lambda: _held_here() == held, f"tasks and descriptors are {held} again", within=8)
        await link.asked_together(50, "after ten cuts")
        assert link.sage.module.asked.total() == 50
        broker, gate = runtimes.broker, link.gate
        await asyncio.to_thread(broker.stop)
        await until(lambda: not link.sage.state.ready)
        assert await link.sage.ended() == 0
        before = len(gate.connections)
        await asyncio.to_thread(broker.start)
        await link.pupil.ready(within=15)
        ends = loop.time() + 15
        while loop.time() < ends:
            assert (len(gate.connections), await link.connections()) == (before, []), "it came back to life"
            await asyncio.sleep(0.25)


def _recovered(link: Link, sessions: int) -> bool:
    return link.sage.state.ready and link.sage.state.sessions >= sessions


async def _at_the_broker(link: Link) -> tuple[int, int, Counter[str]]:
    """Connections, channels and consumers of the sage. The broker's lists lag by a second or so.

    Its list of channels may keep one that was opened while its connection was lost, so the channels themselves are asked.
    """
    of_the_sage = f'[{{user, <<"sage@alpha">>}}, {{vhost, <<"{link.runtimes.vhost}">>}}]'
    expression = f"length([I || I <- rabbit_channel:info_all([user, vhost]), lists:sort(I) =:= {of_the_sage}])."
    channels = await asyncio.to_thread(link.runtimes.broker.evaluate, expression)
    return len(await link.connections()), int(channels), await link.consumers()


async def _settled(link: Link, wanted: object) -> tuple[int, int, Counter[str]]:
    """What the broker lists once that is what is wanted, or after ten seconds."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + 10
    while (seen := await _at_the_broker(link)) != wanted and loop.time() < ends:  # noqa: ASYNC110 - the broker sends no event
        await asyncio.sleep(0.1)
    return seen


def _held_here() -> tuple[int, int]:
    """Tasks and descriptors in this process, those of the requests to the management API left out."""
    tasks = [task for task in asyncio.all_tasks() if not task.get_name().startswith("Task-")]
    return len(tasks), len(os.listdir("/proc/self/fd"))  # noqa: PTH208


async def test_an_operators_reason_for_closing_a_connection_is_shown(runtimes: Runtimes) -> None:
    async with linked(runtimes) as link:
        await link.runtimes.management.close_connection((await until(link.connections, within=5))[0], "for maintenance")
        await until(lambda: not link.sage.state.ready)
        assert "for maintenance" in link.sage.state.last_loss
        await link.sage.ready()
