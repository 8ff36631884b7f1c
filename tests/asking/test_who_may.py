"""Who may ask, answer and reply: judged by the login that the broker validated, never by a field of the message."""

import asyncio
import re

import pytest
from pamqp import commands
from pamqp.common import FieldTable

from mesh_runtime import Found, Reason, Unanswered
from mesh_runtime.broker import Delivery, Properties
from mesh_runtime.contracts import wire
from mesh_runtime.testing.responder import MakeResponder
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.stating import Failing
from mesh_runtime.testing.waiting import until
from tests.asking.parts import Act, Operator, Oracle, Say, Seeker
from tests.raw import raw
from tests.records import Records, said


async def test_a_forged_reply_neither_answers_an_ask_nor_ends_it(runtimes: Runtimes, responder: MakeResponder, records: Records) -> None:
    """Another login that knows session and message id answers first, as found and as rubbish, under its own name and of another type."""
    async with (
        responder("oracle@stand-in", {Say: Failing.NEVER}) as oracle,
        runtimes.run(Seeker) as seeker,
        raw(runtimes, "thief@beta") as thief,
    ):
        await seeker.ready()
        asking = asyncio.create_task(seeker.module.ask(Say(how="?"), budget=5.0))
        await until(lambda: oracle.asked, "it was asked")
        (message_id,) = seeker.life.parts.asker._pending
        session = seeker.life.parts.asker._session
        assert session is not None
        key = wire.reply_key("seeker@alpha", session.id)
        stolen = b'{"outcome": "found", "value": {"text": "stolen"}, "revision": 1, "by": "oracle@stand-in"}'
        me = str(thief.identity)
        for body, type_name, user in ((stolen, "say.1", me), (b"{", "say.1", me), (stolen, "say.1", ""), (stolen, "other.1", me)):
            thief.line.publish(wire.REPLIES, key, body, Properties(type=type_name, message_id="x", correlation_id=message_id, user_id=user))
        await until(lambda: seeker.state.counts.get("foreign-replies") == 4, "all four are dropped")
        assert not asking.done()
        with pytest.raises(Unanswered) as unanswered:
            await asking
        assert unanswered.value.reasons == (Reason.TIME_OUT,)
        assert {one["sender"] for one in said(records, "a reply was dropped")} == {me, ""}


async def test_a_tool_is_an_operators_act(runtimes: Runtimes) -> None:
    async with runtimes.run(Oracle) as oracle, runtimes.run(Operator, "desk") as operator, raw(runtimes, "operator2@desk") as other:
        await oracle.ready()
        await operator.ready()
        acted = await operator.module.ask(Act(), budget=5)
        assert acted.what == "operator@desk"
        with pytest.raises(Unanswered, match="may not publish"):
            await oracle.module.ask(Act())
        # The broker does not let the key through; under another key of the same type it is refused by the answerer.
        message_id = other.ask("say.1", b"{}", type="act.1")
        await until(lambda: other.reply_of(message_id), "it is answered")
        reply = other.reply_of(message_id)
        assert reply is not None
        assert b'"code":"no-handler"' in reply.body


async def test_an_ask_without_a_validated_login_is_not_handled(runtimes: Runtimes) -> None:
    async with runtimes.run(Oracle) as oracle, raw(runtimes, "seeker@raw") as sender:
        await oracle.ready()
        sender.ask("say.1", b'{"how": "nameless"}', user_id="")
        sound = sender.ask("say.1", b'{"how": "named"}')
        await until(lambda: sender.reply_of(sound), "the sound one is answered")
        assert oracle.module.seen == ["named"]
        assert oracle.state.counts["asks-refused"] == 1


async def test_an_ask_that_waited_longer_than_its_budget_is_dropped_and_counted(runtimes: Runtimes) -> None:
    """All places of its level are taken: it waits, its asker gives up, and its handler is never called."""
    async with runtimes.run(Oracle) as oracle, runtimes.run(Seeker, "beta") as seeker:
        await oracle.ready()
        await seeker.ready()
        level = oracle.life.parts.answerer.levels["lookup"]
        held = [asyncio.create_task(seeker.module.ask(Say(how="hold"), budget=20)) for _ in range(level.bound)]
        await until(lambda: len(level.at_work) == level.bound, "every place is taken")
        with pytest.raises(Unanswered) as unanswered:
            await seeker.module.ask(Say(how="too late"), budget=1.5)
        assert unanswered.value.reasons == (Reason.TIME_OUT,)
        (waiting,) = level.waiting
        await until(lambda: asyncio.get_running_loop().time() > waiting.received + 1.5, "its budget has passed here too")
        oracle.module.go.set()
        assert all(isinstance(one, Found) for one in await asyncio.gather(*held))
        await until(lambda: oracle.state.counts.get("asks-out-of-time") == 1, "it is dropped")
        assert "too late" not in oracle.module.seen


async def test_a_reply_address_that_the_broker_would_refuse_costs_the_answerer_nothing(runtimes: Runtimes) -> None:
    """A publish to a key without the right to it closes the channel and with it the session: any login could end one so."""
    async with runtimes.run(Oracle) as oracle, raw(runtimes, "seeker@raw") as sender:
        await oracle.ready()
        hexed = sender.session.id
        for end in ("x", hexed.upper(), f"{hexed}.more", f"{hexed[:-1]}", ""):
            sender.ask("say.1", b'{"how": "unanswerable"}', reply_to=f"seeker@raw.{end}")
            sender.ask("unknown.1", b"{}", reply_to=f"seeker@raw.{end}")
        sound = sender.ask("say.1", b'{"how": "sound"}')
        await until(lambda: sender.reply_of(sound) or oracle.state.sessions > 1, "the sound one is answered")
        assert oracle.state.sessions == 1, f"the session was lost: {oracle.state.last_loss}"
        assert oracle.module.seen == ["sound"]


async def test_an_answer_to_one_login_cannot_be_brought_to_another(runtimes: Runtimes) -> None:
    """The broker's dead-lettering carries a reply on under the login of who gave it. A thief that was asked once asks the same answerer
    under the id that should come next, and has the answer brought to the first asker: only an id that cannot be told keeps it out."""
    async with runtimes.run(Oracle) as oracle, runtimes.run(Seeker) as seeker, raw(runtimes, "thief@beta") as thief:
        await oracle.ready()
        await seeker.ready()
        seen: list[Delivery] = []
        plain = oracle.life.parts.answerer._authorised

        def noting(level: object, delivery: Delivery) -> object:
            seen.append(delivery)
            return plain(level, delivery)  # type: ignore[arg-type]  # passed on

        oracle.life.parts.answerer._authorised = noting  # type: ignore[method-assign, assignment]  # looks on, as one who was asked
        await seeker.module.ask(Say(how="first"), budget=5)
        queue = f"asks.thief@beta.{thief.session.id}.lookup"
        carry: FieldTable = {"x-message-ttl": 0, "x-dead-letter-exchange": wire.REPLIES, "x-dead-letter-routing-key": seen[0].reply_to}
        await thief.session._topology.ask(commands.Queue.Declare(queue=queue, exclusive=True, arguments=carry), queue)
        await thief.session.bind(queue, wire.REPLIES, thief.reply_to)
        asking = asyncio.create_task(seeker.module.ask(Say(how="hold"), budget=10))
        await oracle.module.held.wait()
        guesses = {
            re.sub(r"[0-9]+$", lambda number: str(int(number[0]) + 1), known) for known in (seen[0].message_id, seen[0].correlation_id)
        }
        for guess in guesses:
            thief.ask("say.1", b'{"how": "absent"}', message_id=guess)
        await until(lambda: asking.done() or seeker.state.counts.get("late-replies") == len(guesses), "what was stolen has come")
        oracle.module.go.set()
        assert isinstance(await asking, Found), "the answer to another login was taken"
