"""The stage ``grants``: what is not granted yet is waited for, in words; what is granted is entered, and confirmed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from mesh_runtime import Database, DatabaseAccess, ModuleRuntime, NotGranted, NotSent, SendUnknown, granted
from mesh_runtime.contracts.granting import GrantAsk, Granted
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.outcomes import Refused
from mesh_runtime.grants import held
from mesh_runtime.startup import Stage, blocked
from mesh_runtime.testing.responder import MakeResponder
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.stating import Failing
from mesh_runtime.testing.waiting import until
from mesh_runtime.trust.sealing import PrivateKey, PublicKey
from tests.grants.parts import ONE, StandInServer, ThingAccess, key
from tests.grants.runtimes.parts import MakerRuntime, Pool, Shop, controller, done, stands_at
from tests.grants.runtimes.stating import For, issuing, sealed
from tests.records import Records, said


async def confirmed(runtimes: Runtimes) -> list[tuple[int, bool]]:
    """The logins that the issuer shows, and whether each is confirmed."""
    return [(row.sequence, bool(row.confirmed)) for row in (await done(runtimes, "list", "", None)).rows]


async def confirmed_once(runtimes: Runtimes) -> None:
    """Return once the issuer shows one login, confirmed: the consumer is ready when the broker has taken its word for it."""

    async def it_is() -> bool:
        return await confirmed(runtimes) == [(1, True)]

    await until(it_is, "it is confirmed", every=0.2)


async def test_it_waits_on_the_module_that_provides_it_and_is_ready_once_somebody_does(
    runtimes: Runtimes, responder: MakeResponder, server: StandInServer
) -> None:
    async with controller(responder), runtimes.run(Shop) as shop:
        words = await stands_at(shop, "waiting", "nobody-provides", within=5)
        assert words == "thing.1/one is provided by the module 'maker', and no runtime of it is there"
        assert shop.state.snapshot()["on"] == "maker"
        with pytest.raises(NotGranted, match=r"Shop\.pool \(thing\.1/one\) cannot be read: it is not granted yet"):
            _ = shop.module.pool
        async with runtimes.run(MakerRuntime) as maker:
            await maker.ready()
            await shop.ready(within=20)
            assert shop.module.pool.use() == 1
            await confirmed_once(runtimes)


async def test_what_the_trial_raises_is_shown_and_entered_again(
    runtimes: Runtimes, responder: MakeResponder, server: StandInServer, records: Records
) -> None:
    server.failing["trial"] = ConnectionRefusedError("the pool cannot be opened")
    async with controller(responder), runtimes.run(MakerRuntime) as maker:
        await maker.ready()
        async with runtimes.run(Shop) as shop:
            words = await stands_at(shop, "waiting", "ConnectionRefusedError")
            assert "thing.1/one, entering Shop.pool raised ConnectionRefusedError: the pool cannot be opened" in words
            await until(lambda: shop.state.attempts >= 3, "it is tried again")
            (record,) = said(records, "a grant could not be entered")
            assert isinstance(record["exc_info"], ConnectionRefusedError)
            assert all(pool.closed for pool in Pool.opened)
            del server.failing["trial"]
            await shop.ready()
            await confirmed_once(runtimes)


async def test_an_author_may_say_that_it_is_blocked(runtimes: Runtimes, server: StandInServer) -> None:
    server.failing["trial"] = blocked(Stage.PREPARE, "too-old", "the server is too old", "server")
    async with issuing(runtimes), runtimes.run(Shop) as shop:
        assert await stands_at(shop, "blocked", "too-old") == "thing.1/one: the server is too old"


async def test_an_author_who_exits_ends_no_process(runtimes: Runtimes, server: StandInServer) -> None:
    class Leaver(Shop):
        module = "shop"

        async def trial(self, pool: Pool) -> None:
            raise SystemExit(3)

    async with issuing(runtimes), runtimes.run(Leaver) as shop:
        assert "sys.exit(3)" in await stands_at(shop, "waiting", "CalledExit")
        assert not shop.task.done()


async def test_a_generator_that_yields_nothing_is_shown(runtimes: Runtimes, server: StandInServer) -> None:
    class Empty(ModuleRuntime):
        module = "shop"

        @granted(ONE)
        async def pool(self, access: ThingAccess) -> AsyncIterator[int]:
            for number in list[int]():
                yield number

    async with issuing(runtimes), runtimes.run(Empty) as shop:
        assert "didn't yield" in await stands_at(shop, "waiting", "RuntimeError")


async def test_a_trial_that_hangs_is_cut_and_named(runtimes: Runtimes, server: StandInServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "OBTAIN_WITHIN", 0.5)
    server.hanging.add("trial")
    async with issuing(runtimes), runtimes.run(Shop) as shop:
        assert "thing.1/one was not granted and entered within 0.5 s" in await stands_at(shop, "waiting", "time-out")
        await until(lambda: len(Pool.opened) >= 2 and Pool.opened[0].closed, "it was cut, and is tried again")
        server.hanging.clear()
        await shop.ready()


# ---------------------------------------------------------------------------------------------------- keys


async def test_a_key_that_comes_later_is_waited_for_and_one_that_is_none_blocks(runtimes: Runtimes, server: StandInServer) -> None:
    path = runtimes.directory / "later.pem"
    async with issuing(runtimes) as maker, runtimes.run(Shop, key_file=path) as shop:
        assert await stands_at(shop, "waiting", "no-key") == f"{path} (MESH_KEY_FILE) is not there yet"
        path.mkdir()
        await until(lambda: "cannot be read: Is a directory" in (shop.state.cause.text if shop.state.cause else ""), "it says so")
        path.rmdir()
        path.write_text("-----BEGIN NONSENSE-----")
        words = await stands_at(shop, "blocked", "bad-key")
        assert str(path) in words
        assert "NONSENSE" not in words
        assert maker.asked == []
        path.unlink()
        PrivateKey.generate().save(path)
        await shop.ready(within=20)  # a blocked stage is tried at a slow pace


async def test_without_the_setting_it_is_blocked_by_its_name(
    runtimes: Runtimes, server: StandInServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtimes, "key_file", lambda _: None)
    async with runtimes.run(Shop) as shop:
        assert "MESH_KEY_FILE is not set" in await stands_at(shop, "blocked", "no-key-file")
        assert shop.state.snapshot()["on"] == "MESH_KEY_FILE"


async def test_b64_an_answer_sealed_to_another_key_is_not_opened_names_both_keys_and_is_asked_for_again(
    runtimes: Runtimes, server: StandInServer
) -> None:
    """B64: sealed to a key that is gone: its own cause, both keys named, asked again at the stage's pace, and then entered.

    Removal: mesh_runtime/grants/opening.py: raise waiting(Stage.GRANTS, "cannot-open", words, issuer)
    Assertion: theirs in words and str(ours) in words
    """
    theirs = str(key("other").public_key)
    stale = [True]

    def answer(ask: GrantAsk) -> Granted:
        return sealed(ask, PublicKey.parse(theirs)) if stale else sealed(ask)

    async with issuing(runtimes, answer) as maker, runtimes.run(Shop) as shop:
        words = await stands_at(shop, "waiting", "cannot-open")
        ours = PrivateKey.load(runtimes.key_file(Identity("shop", "alpha"))).public_key
        assert theirs in words and str(ours) in words  # noqa: PT018 - one assertion, which the mutant must fail
        await until(lambda: len(maker.asked) >= 3, "it asks again")
        assert Pool.opened == []
        stale.clear()
        await shop.ready()


@pytest.mark.parametrize("of", ["consumer", "issuer", "sequence", "bit"])
async def test_an_answer_that_was_sealed_for_something_else_is_not_opened(runtimes: Runtimes, server: StandInServer, of: str) -> None:
    def answer(ask: GrantAsk) -> Granted:
        match of:
            case "consumer":
                return sealed(ask, of=For(consumer="shop@beta"))
            case "issuer":
                return sealed(ask, of=For(by="maker@beta"))
            case "sequence":
                return sealed(ask).model_copy(update={"sequence": 2})
        text = sealed(ask).sealed
        flipped = "B" if text[50] == "A" else "A"
        return sealed(ask).model_copy(update={"sealed": text[:50] + flipped + text[51:]})

    async with issuing(runtimes, answer), runtimes.run(Shop) as shop:
        words = await stands_at(shop, "waiting", "cannot-open")
        assert "was not sealed for this" in words
        assert Pool.opened == []


async def test_an_answer_that_holds_no_access_is_said_without_what_it_holds(runtimes: Runtimes, server: StandInServer) -> None:
    body = b'{"at": "server", "user": "u", "password": 12345678987}'
    async with issuing(runtimes, lambda ask: sealed(ask, of=For(body=body))), runtimes.run(Shop) as shop:
        words = await stands_at(shop, "waiting", "malformed-access")
        assert "holds what is no ThingAccess: password: " in words
        assert "12345678987" not in words


# ---------------------------------------------------------------------------------------------------- refusals and silence


async def test_a_refusal_shows_the_issuers_code_and_words(runtimes: Runtimes, server: StandInServer) -> None:
    no = Refused(code="other-owner", why="thing.1/one belongs to the module hall")
    async with issuing(runtimes, no) as maker, runtimes.run(Shop) as shop:
        words = await stands_at(shop, "blocked", "other-owner")
        assert words == "thing.1/one is refused by maker@alpha: thing.1/one belongs to the module hall"
        assert shop.state.snapshot()["on"] == "maker@alpha"
        await maker.say(Refused(code="ledger-failed", why="no room", again=True))
        await stands_at(shop, "waiting", "ledger-failed", within=20)
        await maker.say(sealed)
        await shop.ready()


async def test_an_issuer_that_does_not_answer_is_waited_for(
    runtimes: Runtimes, server: StandInServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mesh_runtime.runtime.granting.ASK_WITHIN", 0.3)
    async with issuing(runtimes, Failing.NEVER) as maker, runtimes.run(Shop) as shop:
        assert "time-out" in await stands_at(shop, "waiting", "unanswered")
        await maker.say(Failing.MALFORMED)
        await until(lambda: "malformed" in (shop.state.cause.text if shop.state.cause else ""), "it says so", within=15)
        await maker.say(sealed)
        await shop.ready()


async def test_an_issuer_of_another_module_is_not_believed(
    runtimes: Runtimes, server: StandInServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mesh_runtime.runtime.granting.ASK_WITHIN", 0.5)
    async with issuing(runtimes, lambda ask: sealed(ask, of=For(by="taker@alpha")), "taker@alpha") as taker, runtimes.run(Shop) as shop:
        await stands_at(shop, "waiting", "unanswered")
        await until(lambda: taker.asked and shop.state.counts.get("foreign-replies"), "the reply of another module came", within=10)
        assert Pool.opened == []


async def test_several_grants_are_asked_for_together_and_all_that_is_in_the_way_is_said(runtimes: Runtimes, server: StandInServer) -> None:
    class Two(Shop):
        module = "shop"

        @granted(Database(name="orders"))
        async def other(self, access: DatabaseAccess) -> AsyncIterator[str]:
            yield access.user

    no = Refused(code="not-needed", why="the manifest needs no such thing")
    async with issuing(runtimes, no) as maker, runtimes.run(Two) as shop:
        words = await stands_at(shop, "blocked", "several")
        assert "thing.1/one is refused by maker@alpha: the manifest needs no such thing" in words
        assert "database.1/orders is provided by the module 'database', and no runtime of it is there" in words
        assert shop.state.snapshot()["on"] == "database, maker@alpha" or shop.state.snapshot()["on"] == "maker@alpha, database"
        await maker.say(sealed)
        await stands_at(shop, "waiting", "nobody-provides", within=20)
        assert shop.module.pool.use() == 1  # what was granted is in force while the other is waited for


# ---------------------------------------------------------------------------------------------------- over several sessions


async def test_what_was_entered_is_not_asked_for_again_when_a_session_is_lost(
    runtimes: Runtimes, responder: MakeResponder, server: StandInServer
) -> None:
    async with controller(responder), runtimes.run(MakerRuntime) as maker, runtimes.run(Shop) as shop:
        await maker.ready()
        await shop.ready(within=20)
        asked = server.steps.count("make")
        pool = shop.module.pool
        session = shop.life.parts.asker._session
        assert session is not None
        session.abort("cut by the test")
        await until(lambda: shop.state.sessions == 2, "it is ready again", within=10)
        assert shop.module.pool is pool
        assert len(Pool.opened) == 1
        assert server.steps.count("make") == asked


@pytest.mark.parametrize("error", [NotSent("nobody listens"), SendUnknown("no word from the broker", "x")])
async def test_a_confirmation_that_was_not_sent_is_sent_under_the_same_message_id(
    runtimes: Runtimes, responder: MakeResponder, server: StandInServer, error: Exception
) -> None:
    sent: list[str] = []

    class Unlucky(Shop):
        module = "shop"

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            plain = self._teller.tell

            async def tell(what: Any, to: Any = None, message_id: str = "", budget: float = 30.0) -> str:
                sent.append(message_id)
                if len(sent) < 3:
                    raise error
                return await plain(what, to, message_id, budget)

            cast("Any", self._teller).tell = tell  # what fails here is the broker

    async with controller(responder), runtimes.run(MakerRuntime) as maker:
        await maker.ready()
        async with runtimes.run(Unlucky) as shop:
            assert "thing.1/one is in force and not confirmed yet" in await stands_at(shop, "waiting", "not-confirmed")
            await shop.ready()
            assert len(sent) == 3
            assert len(set(sent)) == 1
            assert len(sent[0]) == 32
            assert len(Pool.opened) == 1
            await confirmed_once(runtimes)


async def test_prepare_uses_what_was_granted(runtimes: Runtimes, server: StandInServer) -> None:
    class Early(Shop):
        module = "shop"
        early = 0

        async def prepare(self) -> None:
            await super().prepare()
            self.early = self.pool.use()
            await asyncio.sleep(0)

    async with issuing(runtimes), runtimes.run(Early) as shop:
        await until(lambda: shop.module.early == 1, "prepare has used it")
