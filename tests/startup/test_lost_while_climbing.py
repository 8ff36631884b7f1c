"""A session that ends while its stages are climbed is climbed again at a pace, with the cause shown; and it is never in its own way."""

import time
from collections.abc import Mapping
from typing import Any

import pytest
from pamqp import commands
from pamqp.base import Frame

from mesh_runtime.broker import Wire
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.manifest import Manifest
from mesh_runtime.contracts.rights import definitions
from mesh_runtime.startup import Stage, waiting
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from tests.parts import Sage


async def test_a_right_whose_lack_ends_each_session_is_shown_and_not_knocked_for_without_a_pause(
    runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right to write ``mesh.replies`` the proof's own message ends the session: no call waits for an answer to it."""

    def narrow(vhost: str, logins: Mapping[Identity, Manifest]) -> dict[str, list[dict[str, Any]]]:
        made = definitions(vhost, logins)
        for row in made["permissions"]:
            row["write"] = row["write"].replace(r"|mesh\.replies", "")
        return made

    monkeypatch.setattr("mesh_runtime.testing.running.definitions", narrow)
    async with runtimes.run(Sage) as sage:
        began = time.monotonic()
        await until(lambda: sage.state.attempts >= 4, "it has lost four sessions so", within=15)
        took = time.monotonic() - began
        shown = sage.state.snapshot()
        assert (shown["stage"], shown["state"], shown["cause"]["code"]) == ("proof", "waiting", "session-lost")
        assert "403 ACCESS_REFUSED" in shown["cause"]["text"]
        assert min(shown["gaps"]) >= 0.12, f"sessions were opened without a pause: {shown['gaps']} in {took:.2f} s"


async def test_a_reading_right_that_lacks_is_blocked_and_tried_at_a_slow_pace(runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused subscription ends its session; the broker's words must not be lost with it."""

    def narrow(vhost: str, logins: Mapping[Identity, Manifest]) -> dict[str, list[dict[str, Any]]]:
        made = definitions(vhost, logins)
        for row in made["permissions"]:
            row["read"] = r"^mesh\.[a-z]+$"
        return made

    monkeypatch.setattr("mesh_runtime.testing.running.definitions", narrow)
    async with runtimes.run(Sage) as sage:
        await until(lambda: sage.state.attempts >= 1, "it was tried", within=10)
        shown = sage.state.snapshot()
        assert (shown["stage"], shown["state"], shown["cause"]["code"]) == ("topology", "blocked", "no-permission")
        assert sage.state.attempts == 1


async def test_a_subscription_that_was_given_up_is_no_other_consumer(runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker may grant it after nobody waits for it any more: then it is a consumer of a queue that nobody here reads."""
    plain = Wire.call
    given_up: list[Frame] = []

    async def call(self: Wire, request: Frame, about: str = "", limit: float | None = None) -> Any:
        if isinstance(request, commands.Basic.Consume) and request.queue == wire.tells_queue("sage@alpha") and not given_up:
            given_up.append(request)
            self.send(request)
            raise waiting(Stage.TOPOLOGY, "silent", "the broker did not answer in time")
        return await plain(self, request, about, limit)

    monkeypatch.setattr(Wire, "call", call)
    async with runtimes.run(Sage) as sage:
        await sage.ready(within=15)
        assert given_up
        assert sage.state.sessions == 1
