"""The main job on a real broker: two runtimes start, ask, answer, tell and are told."""

import pytest

from mesh_runtime import Absent, Found, NotSent, Reason, Unanswered
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from tests.parts import Noted, Places, Pupil, Sage, Weather, WeatherAt


async def test_a_lookup_is_answered_by_an_identified_answerer_at_a_revision(runtimes: Runtimes) -> None:
    async with runtimes.run(Sage) as sage, runtimes.run(Pupil, "beta") as pupil:
        await sage.ready()
        await pupil.ready()
        found, absent, places = await pupil.module.ask(WeatherAt(place="here"), WeatherAt(place="nowhere"), Places())
        assert found == Found(value=Weather(sky="clear at here"), revision=7, by="sage@alpha")
        assert absent == Absent(revision=7, by="sage@alpha")
        assert places.value == ("here", "there")


async def test_an_ask_that_nobody_answers_is_unanswered_at_once(runtimes: Runtimes) -> None:
    async with runtimes.run(Pupil) as pupil:
        await pupil.ready()
        with pytest.raises(Unanswered) as unanswered:
            await pupil.module.ask(WeatherAt(place="here"), Places())
        assert unanswered.value.reasons == (Reason.NOBODY, Reason.NOBODY)


async def test_a_tell_is_confirmed_and_handled(runtimes: Runtimes) -> None:
    async with runtimes.run(Sage) as sage, runtimes.run(Pupil, "beta") as pupil:
        await sage.ready()
        await pupil.ready()
        await pupil.module.tell(Noted(id=1))
        await pupil.module.tell(Noted(id=2), to=Identity("sage", "alpha"))
        await until(lambda: sage.module.noted == [1, 2], "both are noted")
        with pytest.raises(NotSent, match="nobody listens"):
            await pupil.module.tell(Noted(id=3), to=Identity("sage", "gamma"))


async def test_a_budget_that_is_no_number_is_refused_in_words(runtimes: Runtimes) -> None:
    """Not a number compares with nothing: a timer of it would disorder all timers of the loop."""
    async with runtimes.run(Pupil, "beta") as pupil:
        await pupil.ready()
        with pytest.raises(ValueError, match="budget is nan"):
            await pupil.module.ask(WeatherAt(place="here"), budget=float("nan"))
        with pytest.raises(ValueError, match="budget is nan"):
            await pupil.module.tell(Noted(id=1), budget=float("nan"))
        for budget in (0, -1, -1e300):
            with pytest.raises(Unanswered, match="no budget was left"):
                await pupil.module.ask(WeatherAt(place="here"), budget=budget)
