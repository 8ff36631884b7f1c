"""Of several names for the broker, those that are slow or unknown hold up no attempt longer than they must."""

import re
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from mesh_runtime.broker import resolving
from mesh_runtime.broker.resolving import resolve_all
from mesh_runtime.startup import PACES, Stage, StageFault
from mesh_runtime.startup.pace import Pace
from mesh_runtime.testing.waiting import until

ADDRESS = ("192.0.2.7", 5671)


@pytest_asyncio.fixture
async def names(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """What a name server says: ``known.example`` at once, ``unknown.example`` at once that there is none, ``slow...`` nothing for long,
    ``late-unknown.example`` after a second that there is none."""
    over = threading.Event()

    def answer(host: str, port: int, **_: object) -> list[Any]:
        if host.startswith("slow"):
            over.wait(20)
        if host.startswith("late"):
            over.wait(1.0)
        if host != "known.example":
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ADDRESS)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    monkeypatch.setattr(resolving, "GRACE", 0.2)
    monkeypatch.setitem(PACES, Stage.RESOLVE, Pace(deadline=3.0, first=0.1, cap=0.1))
    yield
    over.set()
    await until(lambda: not resolving._under_way)


def all_of(*hosts: str) -> tuple[tuple[str, int], ...]:
    return tuple((host, 5671) for host in hosts)


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("first", ["unknown.example", "known.example"])
async def test_a_silent_name_gets_the_grace_once_any_other_has_an_address(first: str) -> None:
    began = time.monotonic()
    resolved = await resolve_all(all_of(first, "slow.example", "known.example"))
    assert time.monotonic() - began < 1.5
    assert resolved.targets == [(socket.AF_INET, ADDRESS)]
    (missing,) = [words for words in resolved.missing if words.startswith("slow.example")]
    assert missing.startswith("slow.example: no answer within ")


@pytest.mark.usefixtures("names")
async def test_names_without_an_address_end_at_the_stages_deadline_and_not_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACES, Stage.RESOLVE, Pace(deadline=2.0, first=0.1, cap=0.1))
    began = time.monotonic()
    with pytest.raises(StageFault) as caught:
        await resolve_all(all_of("late-unknown.example", "slow.example"))
    assert 1.95 < time.monotonic() - began < 2.9
    words = r"no address for late-unknown\.example: no such name; slow\.example: no answer within 2\.\d s"
    assert re.fullmatch(words, caught.value.cause.text), caught.value.cause.text
