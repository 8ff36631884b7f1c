"""States are read from a runtime's own socket, kept as a history of changes, and waited for with a deadline that tells what was seen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mesh_runtime.health.serving import serve_state
from mesh_runtime.testing.states import States, read_snapshot
from mesh_runtime.testing.waiting import until

Make = Callable[[Path], States]


def snapshot(state: str, stage: str, code: str = "") -> dict[str, Any]:
    return {"state": state, "stage": stage, "cause": {"code": code} if code else None, "ready": state == "ready"}


async def test_a_history_holds_each_change_once(states: Make, tmp_path: Path) -> None:
    shown = snapshot("waiting", "reach", "refused")
    async with states(tmp_path) as seen:
        async with serve_state(tmp_path, lambda: shown):
            await seen.until_at("reach", "waiting", "refused")
            shown = snapshot("ready", "ready")
            await seen.until_ready()
        await until(lambda: seen.last is None, "it is gone")
    assert [str(one) for one in seen.history if one.state != "gone"] == ["waiting/reach (refused)", "ready/ready"]
    assert seen.history[-1].state == "gone"
    assert [one.at for one in seen.history] == sorted(one.at for one in seen.history)


async def test_what_does_not_come_true_is_told_with_what_was_seen(states: Make, tmp_path: Path) -> None:
    async with serve_state(tmp_path, lambda: snapshot("blocked", "login", "login-refused")):
        with pytest.raises(AssertionError, match=r"ready did not come true within 0\.1 s; seen: blocked/login \(login-refused\)"):
            await states(tmp_path).until_ready(within=0.1)


async def test_nobody_there_is_nothing(tmp_path: Path) -> None:
    assert await read_snapshot(tmp_path / "nowhere") is None
    assert await read_snapshot(tmp_path) is None
