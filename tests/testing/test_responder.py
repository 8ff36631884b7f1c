"""The responder does on a real broker what it is told, also what no sound runtime would; an asker of the library meets each of it."""

import asyncio

import pytest

from mesh_runtime import Absent, Found, Reason, Refused, Unanswered
from mesh_runtime.testing.responder import MakeResponder
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.stating import CannotBe, Failing, Twice
from mesh_runtime.testing.waiting import until
from tests.parts import Places, Pupil, Weather, WeatherAt

CLEAR: Found[Weather] = Found(value=Weather(sky="clear"), revision=3)


async def test_it_answers_as_stated_and_remembers_who_asked(runtimes: Runtimes, responder: MakeResponder) -> None:
    async with responder("sage@stand-in", {WeatherAt: CLEAR, Places: Failing.NEVER}) as sage, runtimes.run(Pupil) as pupil:
        await pupil.ready()
        found = await pupil.module.ask(WeatherAt(place="here"), budget=5)
        assert found == Found(value=Weather(sky="clear"), revision=3, by="sage@stand-in")
        assert [(one.ask, one.sender) for one in sage.asked] == [(WeatherAt(place="here"), "pupil@alpha")]
        assert 0 < sage.asked[0].budget <= 5


@pytest.mark.parametrize(
    ("failing", "reason"),
    [
        (Failing.NOBODY, Reason.NOBODY),
        (Failing.NEVER, Reason.TIME_OUT),
        (Failing.LATE, Reason.TIME_OUT),
        (Failing.REFUSED, Reason.REFUSED),
        (Failing.ERROR, Reason.REFUSED),
        (Failing.MALFORMED, Reason.MALFORMED),
    ],
)
async def test_each_way_of_failing_is_met_by_a_real_asker(
    runtimes: Runtimes, responder: MakeResponder, failing: Failing, reason: Reason
) -> None:
    async with responder("sage@stand-in", {WeatherAt: CLEAR}) as sage, runtimes.run(Pupil) as pupil:
        await pupil.ready()
        await sage.say(WeatherAt, failing)
        with pytest.raises(Unanswered) as unanswered:
            await pupil.module.ask(WeatherAt(place="here"), budget=0.5 if reason is Reason.TIME_OUT else 5.0)
        assert unanswered.value.reasons == (reason,)
        if failing is Failing.LATE:
            await until(lambda: pupil.state.counts.get("late-replies"), "the late reply is counted")
        await sage.say(WeatherAt, CLEAR)
        assert isinstance(await pupil.module.ask(WeatherAt(place="here")), Found)


async def test_a_second_answer_is_dropped_and_counted(runtimes: Runtimes, responder: MakeResponder) -> None:
    async with responder("sage@stand-in", {WeatherAt: Twice(CLEAR, Absent(revision=4))}) as _, runtimes.run(Pupil) as pupil:
        await pupil.ready()
        asks = [pupil.module.ask(WeatherAt(place=str(number))) for number in range(10)]
        assert all(isinstance(one, Found) for one in await asyncio.gather(*asks))
        await until(lambda: pupil.state.counts.get("late-replies") == 10, "all second answers are counted")


async def test_what_cannot_be_is_refused(responder: MakeResponder) -> None:
    with pytest.raises(CannotBe, match="session-lost cannot be done here"):
        async with responder("sage@stand-in", {WeatherAt: Failing.SESSION_LOST}):
            pass
    with pytest.raises(CannotBe, match="its outcome cannot be Absent, only Found"):
        async with responder("sage@stand-in", {Places: Twice(Absent(revision=1))}):
            pass
    async with responder("sage@stand-in", {Places: Refused(code="no", why="no")}):
        pass
