"""Whoever is not the issuer changes nothing, with every right of an identity of its own; and nobody opens what is another's."""

import pytest

from mesh_runtime.contracts.granting import GrantConfirmed, GrantRevoked, GrantRotated, ask_for
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.testing.responder import MakeResponder
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.stating import Failing
from mesh_runtime.testing.waiting import until
from mesh_runtime.trust.sealing import CannotOpen, PrivateKey, purpose_of
from tests.grants.parts import ONE, StandInServer, Thing
from tests.grants.runtimes.parts import MakerRuntime, Pool, Shop, controller, done
from tests.grants.runtimes.stating import issuing
from tests.raw import raw
from tests.records import Records, said


async def both_said(records: Records, sender: str) -> None:
    """Wait until it was said of both tells of this sender that he is not the issuer."""
    events = [f"a grant was told to be {what} by another than its issuer" for what in ("rotated", "revoked")]
    await until(lambda: all(said(records, event, sender=sender, issuer="maker@alpha") for event in events), f"both are said of {sender}")


async def test_tells_of_another_login_than_the_issuers_are_said_and_change_nothing(
    runtimes: Runtimes, server: StandInServer, records: Records
) -> None:
    """Another module that may tell such things (a provisioner of something else), and another placement of the same module."""
    async with (
        issuing(runtimes) as issuer,
        issuing(runtimes, Failing.NOBODY, "forger@alpha") as forger,
        issuing(runtimes, Failing.NOBODY, "maker@beta") as other,
        runtimes.run(Shop) as shop,
    ):
        await shop.ready()
        true = issuer.rotated(2)
        for one in (forger, other):
            one.tell(true)
            one.tell(GrantRevoked(resource=ONE.text, sequence=9, why="forged"))
            await both_said(records, str(one.identity))
        assert shop.state.ready
        assert shop.module.pool.use() == 1
        assert len(Pool.opened) == 1
        assert [one.sequence for one in issuer.confirmed] == [1]
        assert not said(records, "a tell is parked")


async def test_tells_about_what_is_not_needed_or_sealed_to_another_are_said_and_change_nothing(
    runtimes: Runtimes, server: StandInServer, records: Records
) -> None:
    async with issuing(runtimes) as issuer, runtimes.run(Shop) as shop:
        await shop.ready()
        issuer.tell(issuer.rotated(2).model_copy(update={"resource": "thing.1/other"}))
        await until(lambda: said(records, "a grant was told of that this module does not need", resource="thing.1/other"), "it is said")
        issuer.tell(issuer.rotated(2, PrivateKey.generate().public_key))
        await until(lambda: said(records, "a rotated grant is sealed to another key", sequence=2), "it is said")
        assert shop.module.pool.use() == 1
        assert len(Pool.opened) == 1


async def test_a_confirmation_of_another_login_retires_nothing(
    runtimes: Runtimes, responder: MakeResponder, server: StandInServer, records: Records
) -> None:
    async with (
        controller(responder),
        runtimes.run(MakerRuntime) as maker,
        runtimes.run(Shop) as shop,
        raw(runtimes, "shop@beta", tells=("grant-confirmed.1",)) as forger,
    ):
        await maker.ready()
        await shop.ready(within=20)
        server.hanging.add("trial")
        await done(runtimes, "rotate")
        await until(lambda: len(Pool.opened) == 2, "it enters the second")
        forger.tell("grant-confirmed.1", GrantConfirmed(resource=ONE.text, sequence=2).model_dump_json().encode())
        await until(lambda: said(records, "a grant was confirmed that was never made", consumer="shop@beta"), "it is said")
        assert len(server.accounts) == 2
        assert shop.module.pool.use() == 1
        server.hanging.clear()


@pytest.mark.parametrize("who", ["shop@beta", "thief@alpha"])
async def test_a_second_identity_with_every_right_of_its_own_opens_replays_and_asks_in_vain(
    runtimes: Runtimes, responder: MakeResponder, server: StandInServer, who: str
) -> None:
    """``shop@beta`` is another placement of the very module; it may even be granted the same resource."""
    async with controller(responder), runtimes.run(MakerRuntime) as maker, runtimes.run(Shop) as shop:
        await maker.ready()
        await shop.ready(within=20)
        key = PrivateKey.load(runtimes.key_file(Identity("shop", "alpha")))
        async with raw(runtimes, who, tells=("grant-confirmed.1",)) as other:
            # It asks with the other's public key: what it gets is for itself, and only the other's private key opens it.
            body = ask_for(Thing)(resource=ONE, key=str(key.public_key)).model_dump_json().encode()
            number = other.ask("thing.1", body, level="provision")
            await until(lambda: other.reply_of(number), "it is answered", within=10)
            reply = other.reply_of(number)
            assert reply is not None
            if who == "thief@alpha":
                assert b'"code":"other-owner"' in reply.body
                return
            tell = GrantRotated.model_validate_json(reply.body.replace(b'"outcome":"granted"', b'"resource":"thing.1/one"'))
            mine = PrivateKey.generate()
            for consumer in ("shop@alpha", "shop@beta"):
                with pytest.raises(CannotOpen):
                    mine.open(tell.sealed, purpose_of("access", consumer, ONE.text, "maker@alpha", tell.sequence))
            with pytest.raises(CannotOpen):  # replayed as the other's own
                key.open(tell.sealed, purpose_of("access", "shop@alpha", ONE.text, "maker@alpha", tell.sequence))
        assert shop.module.pool.use() == 1
