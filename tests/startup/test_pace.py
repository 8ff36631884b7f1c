"""The gaps between attempts: they grow, they are capped, they differ, and who is blocked is tried at most six times a minute."""

import random
from itertools import islice, pairwise

import pytest

from mesh_runtime.startup import PACES, Cause, Kind, Stage, climbing_waits
from mesh_runtime.startup.pace import BLOCKED_GAP

WAITING = Cause(Kind.WAITING, "refused", "127.0.0.1:1: Connection refused")
BLOCKED = Cause(Kind.BLOCKED, "login-refused", "the login is refused")


def gaps(waits: climbing_waits, stage: Stage, cause: Cause, count: int) -> list[float]:
    return list(islice(iter(lambda: waits.after(stage, cause), None), count))


@pytest.mark.parametrize("stage", list(Stage))
def test_gaps_grow_until_the_cap_and_never_exceed_it(stage: Stage) -> None:
    drawn = gaps(climbing_waits(uniform=random.Random(7).uniform), stage, WAITING, 40)
    cap = PACES[stage].cap
    assert max(drawn) <= cap
    growing = [gap for gap in drawn if gap < 0.6 * cap]
    assert all(earlier < later for earlier, later in pairwise(growing)), drawn
    assert min(drawn[20:]) >= 0.6 * cap, "once grown they stay so"
    assert drawn[0] <= PACES[stage].first


@pytest.mark.parametrize("stage", [Stage.RESOLVE, Stage.REACH])
def test_resolving_and_reaching_are_tried_at_least_once_a_second(stage: Stage) -> None:
    assert max(gaps(climbing_waits(), stage, WAITING, 200)) < 1.0


@pytest.mark.parametrize("stage", [Stage.TRUST, Stage.LOGIN])
def test_handshakes_back_off_to_fifteen_seconds(stage: Stage) -> None:
    assert 9.0 < max(gaps(climbing_waits(), stage, WAITING, 60)) <= 15.0


@pytest.mark.parametrize("stage", list(Stage))
def test_a_blocked_stage_is_tried_at_most_six_times_a_minute(stage: Stage) -> None:
    drawn = gaps(climbing_waits(), stage, BLOCKED, 200)
    assert min(drawn) >= 10.0
    assert max(drawn) <= BLOCKED_GAP[1] <= 15.0


def test_two_runtimes_that_start_together_do_not_knock_together() -> None:
    first = gaps(climbing_waits(uniform=random.Random(1).uniform), Stage.REACH, WAITING, 20)
    second = gaps(climbing_waits(uniform=random.Random(2).uniform), Stage.REACH, WAITING, 20)
    assert not set(first) & set(second)


def test_another_stage_another_kind_and_a_session_begin_anew() -> None:
    waits = climbing_waits(uniform=lambda low, high: high)
    grown = gaps(waits, Stage.REACH, WAITING, 10)[-1]
    assert waits.after(Stage.TRUST, WAITING) == PACES[Stage.TRUST].first
    assert waits.after(Stage.REACH, WAITING) == PACES[Stage.REACH].first < grown
    gaps(waits, Stage.LOGIN, WAITING, 10)
    assert waits.after(Stage.LOGIN, BLOCKED) == BLOCKED_GAP[1]
    assert waits.after(Stage.LOGIN, WAITING) == PACES[Stage.LOGIN].first
    gaps(waits, Stage.LOGIN, WAITING, 10)
    waits.reset()
    assert waits.after(Stage.LOGIN, WAITING) == PACES[Stage.LOGIN].first


def test_another_cause_of_the_same_stage_and_kind_goes_on_growing() -> None:
    """Else a server that fails in turn in two ways would be knocked at without pause."""
    waits = climbing_waits(uniform=lambda low, high: high)
    other = Cause(Kind.WAITING, "reset", "127.0.0.1:1 hung up")
    drawn = [waits.after(Stage.TRUST, cause) for cause in (WAITING, other, WAITING, other)]
    assert all(earlier < later for earlier, later in pairwise(drawn))
