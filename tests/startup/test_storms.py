"""Sessions that are lost right after each *ready*: whatever ends them, they are climbed again at a pace that grows, not without a gap."""

import asyncio
import time

import pytest

from mesh_runtime.broker import Session
from mesh_runtime.runtime import climbing
from mesh_runtime.startup import RuntimeState
from mesh_runtime.testing.running import Running, Runtimes
from mesh_runtime.testing.waiting import until
from tests.parts import Sage

SESSIONS = 8


def end(running: Running) -> None:
    session = running.life.parts.asker._session
    if session is not None:
        session.abort("an operator's script closes whatever is new")


async def storm(runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch) -> tuple[float, list[float]]:
    """From the first *ready* to the last of eight, each of which was the last turn of its session; and the gaps after each."""
    at: list[float] = []
    gaps: list[float] = []
    plain = climbing.Climber._gap_after_loss

    def noted(self: climbing.Climber, session: Session, why: str, stood: float) -> float:
        gaps.append(plain(self, session, why, stood))
        return gaps[-1]

    monkeypatch.setattr(climbing.Climber, "_gap_after_loss", noted)
    async with runtimes.run(Sage) as sage:

        def seen(state: RuntimeState) -> None:
            if state.ready and len(at) < SESSIONS:
                at.append(time.monotonic())
                asyncio.get_running_loop().call_soon(end, sage)

        sage.state.listen(seen)
        await until(lambda: len(gaps) == SESSIONS, "so many sessions were lost", within=25)
        await sage.ready()
        assert "an operator's script" in sage.state.last_loss
    return at[-1] - at[0], gaps


async def test_they_are_climbed_again_at_the_pace_of_ready(runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch) -> None:
    took, gaps = await storm(runtimes, monkeypatch)
    assert gaps[0] < 0.2
    assert 0.6 < gaps[-1] <= 1.0
    assert took >= sum(gaps[:-1]) >= 2.4, f"{SESSIONS} sessions in {took:.2f} s"


async def test_after_a_session_that_stood_there_is_no_gap(runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(climbing, "STOOD", 0.0)
    _, gaps = await storm(runtimes, monkeypatch)
    assert gaps == [0.0] * SESSIONS
