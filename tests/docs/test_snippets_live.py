"""The classes that the guide shows do what its words say, on a real broker."""

import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from mesh_runtime import Absent, Files, Found, Machine, NotSent, Refused
from mesh_runtime.startup import Kind, Stage
from mesh_runtime.testing.responder import MakeResponder
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from tests.docs.pages import GUIDE, codes

ALPHA = Machine(name="alpha", address="10.77.0.1")


@pytest.fixture
def shown() -> Iterator[Callable[[str], ModuleType]]:
    """Runs the snippet of the guide in which a class of this name is made."""
    made: list[str] = []

    def runs(name: str) -> ModuleType:
        (code,) = (one for one in codes(GUIDE / "write-a-module.md", "python") if f"class {name}(ModuleRuntime)" in one.text)
        module = sys.modules[f"shown_{name}"] = ModuleType(f"shown_{name}")
        made.append(module.__name__)
        exec(compile(code.text, str(code), "exec"), vars(module))  # noqa: S102 - what this test is for
        return module

    yield runs
    for name in made:
        del sys.modules[name]


async def test_what_pupil_tells_is_what_sage_answers(runtimes: Runtimes, shown: Callable[[str], ModuleType]) -> None:
    guide = shown("Sage")
    async with runtimes.run(guide.Sage) as sage, runtimes.run(guide.Pupil, "beta") as pupil:
        await sage.ready()
        await pupil.ready()
        ask = guide.WeatherAt(place="here")
        assert isinstance(await pupil.module.ask(ask), Absent)
        await pupil.module.say("here", "clear")
        await until(lambda: "here" in sage.module.known, "sage was told")
        found = await pupil.module.ask(ask)
        assert (found.value.sky, found.by, found.revision) == ("clear", "sage@alpha", 1)


async def test_pupil_hears_that_nobody_listens(runtimes: Runtimes, shown: Callable[[str], ModuleType]) -> None:
    guide = shown("Sage")
    async with runtimes.run(guide.Pupil, "beta") as pupil:
        await pupil.ready()
        assert await pupil.module.say("here", "clear") == "it certainly did not arrive"
        with pytest.raises(NotSent):
            await pupil.module.tell(guide.Seen(place="here", sky="clear"))


async def test_balance_asks_each_gauge(runtimes: Runtimes, responder: MakeResponder, shown: Callable[[str], ModuleType]) -> None:
    guide = shown("Balance")
    calm, busy = (Found[guide.Load](value=guide.Load(one_minute=load), revision=1) for load in (0.5, 9.0))  # type: ignore[name-defined]
    alpha, beta = responder("gauge@alpha", {guide.LoadOf: calm}), responder("gauge@beta", {guide.LoadOf: busy})
    async with alpha, beta as second, runtimes.run(guide.Balance) as balance:
        await balance.ready()
        refused = await balance.module.compose(ALPHA)
        assert isinstance(refused, Refused)
        assert (refused.code, refused.why) == ("busy", "gauge@beta")
        await second.say(guide.LoadOf, calm)
        assert await balance.module.compose(ALPHA) == Files(files=())


async def test_licensed_is_blocked_at_prepare_until_its_licence_is_mended(runtimes: Runtimes, shown: Callable[[str], ModuleType]) -> None:
    guide = shown("Licensed")
    licence = runtimes.directory / "state" / "licensed@alpha" / "licence"
    licence.parent.mkdir(parents=True)
    licence.write_text("")
    async with runtimes.run(guide.Licensed) as licensed:
        await until(lambda: licensed.state.is_blocked, "it is blocked")
        cause = licensed.state.cause
        assert cause is not None
        assert (licensed.state.stage, cause.kind, cause.code, cause.on) == (Stage.PREPARE, Kind.BLOCKED, "empty-licence", str(licence))


async def test_web_waits_for_its_directory_and_says_which_setting_names_it(runtimes: Runtimes, shown: Callable[[str], ModuleType]) -> None:
    guide = shown("Web")
    root = runtimes.directory / "www"
    async with runtimes.run(guide.Web, own=guide.WebSettings(token="t", root=root)) as web:
        await until(lambda: web.state.cause is not None and web.state.stage is Stage.PREPARE, "it waits at prepare")
        cause = web.state.cause
        assert cause is not None
        assert (cause.kind, cause.code) == (Kind.WAITING, "NotADirectoryError")
        assert "MESH_WEB_ROOT" in cause.text
        root.mkdir()
        await web.ready()
