"""What the guide's threat model says of the broker's administrator is so: in the names of three he is granted a login.

A known flaw, shown so that nobody takes the page for more, or for less, than it is. Whoever mends it turns this test round.
"""

from mesh_runtime.contracts.granting import Granted, GrantTerms, TermsOf, ask_for
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.outcomes import Found
from mesh_runtime.testing.responder import MakeResponder
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from mesh_runtime.trust.sealing import PrivateKey
from tests.grants.parts import ONE, StandInServer, Thing, opened
from tests.grants.runtimes.parts import MakerRuntime, Shop, done
from tests.raw import Raw, raw

SHOP = "shop@alpha"


def terms(key: PrivateKey) -> Found[GrantTerms]:
    """What a controller says of a placement with this key."""
    return Found[GrantTerms](value=GrantTerms(key=str(key.public_key)), revision=1)


async def answer_to(consumer: Raw, key: PrivateKey) -> bytes:
    """What the issuer answers this login, asking with this key."""
    number = consumer.ask("thing.1", ask_for(Thing)(resource=ONE, key=str(key.public_key)).model_dump_json().encode(), level="provision")
    await until(lambda: consumer.reply_of(number), "it is answered", within=10)
    reply = consumer.reply_of(number)
    assert reply is not None
    return reply.body


async def test_with_all_three_logins_he_is_granted_a_login_and_the_real_consumer_says_so(
    runtimes: Runtimes, responder: MakeResponder, server: StandInServer
) -> None:
    mine = PrivateKey.generate()
    theirs = PrivateKey.load(runtimes.key_file(Identity.parse(SHOP)))
    async with responder("controller@alpha", {TermsOf: terms(theirs)}) as controller, runtimes.run(MakerRuntime) as maker:
        await maker.ready()
        async with runtimes.run(Shop) as shop:
            await shop.ready(within=20)
        async with raw(runtimes, SHOP) as he:
            # The consumer's login alone is not enough, nor is it with the operator's: the controller knows whose key it is.
            assert b'"code":"other-key"' in await answer_to(he, mine)
            await done(runtimes, "rekey", resource=None)
            assert b'"code":"other-key"' in await answer_to(he, mine)
            await controller.say(TermsOf, terms(mine))
            granted = Granted.model_validate_json(await answer_to(he, mine))
            access = opened(granted, mine, SHOP)
            assert server.opens(access.user, access.password.get_secret_value())
        async with runtimes.run(Shop) as shop:
            await until(lambda: shop.state.is_blocked and shop.state.cause is not None, "the real consumer is blocked", within=20)
            cause = shop.state.cause
            assert cause is not None
            assert cause.code == "other-key"
            assert str(mine.public_key) in cause.text
            assert str(theirs.public_key) in cause.text
