"""Secrets that travel as grants: planted in what a consumer is granted, and searched for in all that it writes, shows, parks and keeps."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh_runtime.contracts.granting import GrantAsk, Granted
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.testing.processes import program_of
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from tests.grants.parts import ThingAccess
from tests.grants.runtimes.stating import For, issuing, sealed
from tests.parts import Noted
from tests.raw import parked, raw
from tests.secrets.granted_parts import Careless
from tests.secrets.parts import text_of_files
from tests.secrets.planting import HARD, found_of
from tests.secrets.test_of_runtimes import command_lines, health
from tests.startup.launching import Launcher, placed

FIRST, SECOND = HARD[:2]
PLACES = {"log", "state", "health", "parked tells"}
"""Where a careless author's secret would be read without masking. Files, command lines and environments hold none anyway."""


def program(masking: bool) -> list[str]:
    interpreter, flag, code = program_of(Careless)
    return [interpreter, flag, code if masking else f"import tests.secrets.unmasked; {code}"]


def holding(secret: str) -> For:
    access = ThingAccess.model_validate({"at": "server", "user": "login", "password": secret})
    return For(consumer="careless@alpha", body=access.revealed())


def environments() -> Iterator[str]:
    """Those of all processes of this machine that may be read."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")


async def spilled_by(launch: Launcher, runtimes: Runtimes, masking: bool) -> dict[str, str]:
    """Grant, fail to enter, enter, rotate in vain, raise in a handler, stop; returns by place all that could be read of it."""
    key = runtimes.key_file(Identity("careless", "alpha"))

    def answer(ask: GrantAsk) -> Granted:
        return sealed(ask, of=holding(FIRST.text))

    async with issuing(runtimes, answer) as issuer, raw(runtimes, "pupil@outside", tells=("noted.1",)) as pupil:
        variables = await placed(runtimes, Careless, "alpha", MESH_KEY_FILE=str(key))
        process = await launch.start(variables, program(masking))
        shown = await process.states.until_at("grants", "waiting", "ConnectionRefusedError", within=40)
        places = {"state": str(shown), "health": await health(process)}
        (process.states.directory / "works").touch()
        await process.states.until_ready(within=40)
        places["command lines"] = "\n".join(command_lines())
        places["environments"] = "\n".join(environments())
        (process.states.directory / "works").unlink()
        issuer.tell(issuer.rotated(2, of=holding(SECOND.text)), to="careless@alpha")
        pupil.tell(Noted.type_name(), b'{"id": 1}')
        put_aside = await parked(runtimes, "careless@alpha", 2, within=30)
        await until(lambda: [one.sequence for one in issuer.confirmed] == [1], "the first alone was confirmed")
        assert await process.stop() == 0
    assert (process.states.directory / "left").exists()
    places["parked tells"] = "\n".join(f"{one.body!r} {one.headers}" for one in put_aside)
    places["log"] = process.logs.text
    places["files"] = text_of_files(process.states.directory)
    private = key.read_text().splitlines()[1]
    places["key"] = "the private key" if any(private in text for text in places.values()) else ""
    return places


@pytest.mark.timeout(120)  # a process starts, and two tells are tried for two seconds before they are parked
async def test_k15_no_secret_of_a_grant_is_logged_shown_parked_or_kept(launch: Launcher, runtimes: Runtimes) -> None:
    """The password of a grant, of a rotated one that cannot be entered, and the placement's private key.

    Removal: mesh_runtime/grants/opening.py: register_secret(secret)
    Assertion: found_of((FIRST, SECOND), places) == {}
    """
    places = await spilled_by(launch, runtimes, masking=True)
    assert found_of((FIRST, SECOND), places) == {}
    assert places["key"] == ""
    for place in PLACES:
        assert "***" in places[place], f"{place}: nothing was masked, so nothing was spilled"


@pytest.mark.timeout(120)
async def test_with_masking_off_the_same_search_finds_the_grants_secret_in_each_place(launch: Launcher, runtimes: Runtimes) -> None:
    places = await spilled_by(launch, runtimes, masking=False)
    assert set(found_of((FIRST, SECOND), places)) == PLACES
    assert places["key"]
