"""What is cut short at an unlucky moment leaves nothing open, and a cancellation that nobody here asked for is a fault like any other."""

import asyncio
import socket

import pytest

from mesh_runtime.broker import BrokerAt, Session, login, open_session
from mesh_runtime.broker.calls import Channel
from mesh_runtime.broker.reaching import _Race
from mesh_runtime.startup import Kind, Stage, StageFault
from mesh_runtime.testing.waiting import until
from tests.broker.conftest import USER


async def test_a_second_winner_is_closed_also_if_the_race_is_cancelled_as_it_ends() -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    sockets = [one for one, _ in pairs]

    async def stands(made: socket.socket) -> socket.socket:
        return made

    targets = [(socket.AF_INET, ("192.0.2.1", port)) for port in (1, 2)]
    race = _Race(targets)
    race._open = {asyncio.ensure_future(stands(made)): target for made, target in zip(sockets, targets, strict=True)}
    assert await race.run(1.0) in targets
    stopping = asyncio.ensure_future(race.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    for one, other in pairs:
        other.close()
        assert one.fileno() == -1


async def test_a_login_that_the_client_cancels_by_itself_is_waited_for(at: BrokerAt, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client ends what is pending on a frozen link by a bare cancellation; taken for one of ours it would end the process."""

    async def gives_up(self: object) -> bool:
        raise asyncio.CancelledError

    monkeypatch.setattr(login.PlainConnection, "connect", gives_up)
    with pytest.raises(StageFault) as caught:
        await open_session(at, USER)
    assert (caught.value.stage, caught.value.cause.kind, caught.value.cause.code) == (Stage.LOGIN, Kind.WAITING, "closed")
    assert caught.value.cause.text.strip()


async def test_a_channel_that_is_given_up_before_it_confirms_is_closed(session: Session) -> None:
    def selecting() -> bool:
        pending = [what for one in session._link.channels.values() if isinstance(one, Channel) for what, _ in one._calls]
        return "Confirm.Select" in pending

    opening = asyncio.ensure_future(session.confirmed())
    await until(selecting, every=0)
    opening.cancel()
    await asyncio.wait({opening})
    await until(lambda: not session._link.channels, "its number is free again")
