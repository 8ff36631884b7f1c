"""An answerer whose session was lost while a handler was at work: what its asker is told of it, once there is a session again."""

import asyncio
from typing import Any, cast

from mesh_runtime.asking import Answer, Answerer, Scope
from mesh_runtime.broker import Consumer, Delivery, Properties, Wire
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.outcomes import Outcome, Refused
from mesh_runtime.startup import RuntimeState
from mesh_runtime.testing.waiting import until
from tests.asking.parts import Quick

ASKER, SESSION = "seeker@beta", "0123456789abcdef" * 2


class Line:
    """A channel that notes what is published."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def publish(self, exchange: str, key: str, body: bytes, props: Properties) -> None:
        self.bodies.append(body)

    def ack(self, tag: int) -> None:
        pass

    def taken(self, answerer: Answerer) -> None:
        answerer.attach(cast("Wire", self), dict.fromkeys(answerer.levels, cast("Wire", self)))


def an_ask() -> Delivery:
    now = asyncio.get_running_loop().time()
    more: dict[str, Any] = {"headers": {}, "exchange": "mesh.asks", "routing_key": "", "delivery_tag": 1, "redelivered": False}
    return Delivery(
        body=b"{}",
        type=Quick.type_name(),
        message_id="m",
        correlation_id="c",
        app_id=ASKER,
        user_id=ASKER,
        expiration="5000",
        reply_to=f"{ASKER}.{SESSION}",
        received=now,
        consumer=cast("Consumer", None),
        **more,
    )


async def told_by(*, stopping: bool) -> Refused:
    """What the asker is told by an answerer whose handler takes until the next session to end."""
    begun, ends = asyncio.Event(), asyncio.Event()

    async def handle(_: Any, __: Scope) -> Outcome:
        begun.set()
        try:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")
        finally:
            await ends.wait()

    me = Identity("oracle", "alpha")
    answerer = Answerer(me, [Answer(Quick, handle, "handle")], RuntimeState(str(me), "1", 1))
    first, second = Line(), Line()
    first.taken(answerer)
    answerer.receiver("lookup")(an_ask())
    await begun.wait()
    if stopping:
        assert await answerer.finish(0.0) == 1
    else:
        answerer.detach()
        second.taken(answerer)
    ends.set()
    line = first if stopping else second
    await until(lambda: line.bodies)
    assert not (second if stopping else first).bodies
    return Refused.model_validate_json(line.bodies[0])


async def test_that_the_session_was_lost_and_not_that_it_stops() -> None:
    told = await told_by(stopping=False)
    assert (told.code, told.again) == ("interrupted", True)
    assert "oracle@alpha lost its session" in told.why


async def test_that_it_stops_if_it_does() -> None:
    told = await told_by(stopping=True)
    assert (told.code, told.why, told.again) == ("stopping", "oracle@alpha is stopping", True)
