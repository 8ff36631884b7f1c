"""No delivery is held for the length of the work, and none longer than the library's own limit, which is below the broker's."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from mesh_runtime import Found
from mesh_runtime.broker import Delivery, Properties, SessionLost
from mesh_runtime.testing.broker import PrivateBroker
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from tests.asking.parts import Oracle, Say, Seeker, Slow, Wanted
from tests.raw import parked, raw
from tests.records import Records, said

#: Milliseconds: the broker's limit in this test, and how often it looks (it looks once a minute by default).
TIMEOUT, LOOKS = 3000, 500


@pytest_asyncio.fixture
async def impatient(runtimes: Runtimes) -> AsyncIterator[Runtimes]:
    """The shared broker with a limit of three seconds for whoever connects now; put back afterwards."""
    broker: PrivateBroker = runtimes.broker
    await asyncio.to_thread(broker.set_parameter, "consumer_timeout", str(TIMEOUT))
    await asyncio.to_thread(broker.set_parameter, "channel_tick_interval", str(LOOKS))
    yield runtimes
    await asyncio.to_thread(broker.set_parameter, "consumer_timeout", "1800000")
    await asyncio.to_thread(broker.set_parameter, "channel_tick_interval", "60000")


@pytest.mark.timeout(90)  # three times the broker's limit, and six calls of its command line
async def test_b30_work_longer_than_the_brokers_limit_costs_no_channel(impatient: Runtimes, records: Records) -> None:
    """B30: an ask whose work takes three times the broker's limit runs once; a tell that is held is cut at the library's own limit.

    Removal: mesh_runtime/asking/answering.py: level.line.ack(delivery.delivery_tag)
    Assertion: oracle.state.sessions == 1
    """
    async with impatient.run(Oracle) as oracle, impatient.run(Seeker, "beta") as seeker:
        oracle.life.parts.listener._hold_limit = 0.5  # as 600 s are to the broker's default of 1800
        await oracle.ready()
        await seeker.ready()
        work = asyncio.create_task(seeker.module.ask(Slow(seconds=3 * TIMEOUT / 1000), budget=20))
        work.add_done_callback(lambda task: task.exception())
        await seeker.module.tell(Wanted(how="never", number=1))
        await seeker.module.tell(Wanted(number=2))
        await asyncio.wait([work])
        assert oracle.state.sessions == 1, f"the broker closed the channel: {oracle.state.last_loss}"
        assert isinstance(await work, Found)
        assert oracle.module.kept == [2]
        (cut,) = said(records, "a handler of tells was cut at its limit", level="error", handler="Oracle.want")
        assert cut["why"] == "Oracle.want held its tell for more than 0.5 s"
        (put_aside,) = await parked(impatient, "oracle@alpha", 1)
        assert put_aside.headers["mesh-park-reason"] == "time-out: Oracle.want held its tell for more than 0.5 s"
        assert isinstance(await seeker.module.ask(Say(how="next"), budget=5), Found)

    # That the broker does close the channel of one who holds a delivery for longer, in this very set-up:
    async with raw(impatient, "seeker@raw") as holder:
        held: list[Delivery] = []
        queue = f"asks.seeker@raw.{holder.session.id}.lookup"
        await holder.session.declare_queue(queue, exclusive=True)
        line = await holder.session.wire()
        await line.consume(queue, held.append)
        await holder.session.bind(queue, "mesh.replies", holder.reply_to)
        holder.line.publish("mesh.replies", holder.reply_to, b"{}", _plain())
        await until(lambda: held, "it is held")
        await until(lambda: line.over, "the broker closes its channel", within=10)
        assert isinstance(line.over, SessionLost)
        assert "PRECONDITION_FAILED" in str(line.over)


def _plain() -> Properties:
    return Properties(type="x.1", message_id="1")
