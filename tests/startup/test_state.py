"""The one state object: which word it is in, what is shown as the cause and since when, and what a change of stage does to them."""

import itertools

import pytest

from mesh_runtime.startup import Cause, Kind, RuntimeState, Stage

REFUSED = Cause(Kind.WAITING, "refused", "127.0.0.1:1: Connection refused", "127.0.0.1:1")
SILENT = Cause(Kind.WAITING, "silent", "127.0.0.1:1 is silent", "127.0.0.1:1")
NO_LOGIN = Cause(Kind.BLOCKED, "login-refused", "127.0.0.1:1 refuses the login", "127.0.0.1:1")


@pytest.fixture
def state() -> RuntimeState:
    times = (f"t{number}" for number in itertools.count())
    return RuntimeState("sage@alpha", "1.2.3", 4711, clock=lambda: next(times))


def test_it_stands_before_the_first_stage(state: RuntimeState) -> None:
    shown = state.snapshot()
    assert (shown["state"], shown["stage"], shown["ready"], shown["cause"]) == ("starting", "settings", False, None)
    assert (shown["identity"], shown["version"], shown["pid"], shown["started"]) == ("sage@alpha", "1.2.3", 4711, "t0")


def test_a_fault_says_stage_cause_since_attempts_and_on_whom(state: RuntimeState) -> None:
    state.climbing(Stage.REACH)
    state.fault(Stage.REACH, REFUSED)
    since = state.since
    state.fault(Stage.REACH, REFUSED)
    state.fault(Stage.REACH, REFUSED)
    shown = state.snapshot()
    assert (shown["state"], shown["stage"], shown["on"]) == ("waiting", "reach", "127.0.0.1:1")
    assert shown["cause"] == {"kind": "waiting", "code": "refused", "text": "127.0.0.1:1: Connection refused"}
    assert (shown["attempts"], shown["since"], len(shown["gaps"])) == (3, since, 2)


def test_another_code_counts_from_its_own_beginning(state: RuntimeState) -> None:
    state.fault(Stage.REACH, REFUSED)
    first = state.since
    state.fault(Stage.REACH, SILENT)
    assert (state.attempts, state.since > first, state.snapshot()["gaps"]) == (1, True, [])


def test_a_cause_stands_while_earlier_stages_are_climbed_again(state: RuntimeState) -> None:
    """Else an operator would see *login refused* for a moment every ten seconds, and *resolve* in between."""
    state.fault(Stage.LOGIN, NO_LOGIN)
    for stage in (Stage.RESOLVE, Stage.REACH, Stage.TRUST, Stage.LOGIN):
        state.climbing(stage)
        assert (state.state, state.stage, state.cause) == ("blocked", Stage.LOGIN, NO_LOGIN)
    assert state.is_blocked
    state.climbing(Stage.TOPOLOGY)
    assert (state.state, state.stage, state.cause) == ("starting", Stage.TOPOLOGY, None)


def test_what_is_passed_is_over(state: RuntimeState) -> None:
    state.fault(Stage.PREPARE, REFUSED)
    state.passed(Stage.TOPOLOGY)
    assert state.cause is REFUSED
    state.passed(Stage.PREPARE)
    assert state.snapshot()["cause"] is None
    assert state.attempts == 0


def test_ready_draining_and_lost_have_one_word_each(state: RuntimeState) -> None:
    state.became_ready()
    assert (state.state, state.ready, state.stage, state.snapshot()["sessions"]) == ("ready", True, Stage.READY, 1)
    state.lost("the broker closed the connection")
    assert (state.state, state.ready, state.stage, state.last_loss) == (
        "starting",
        False,
        Stage.RESOLVE,
        "the broker closed the connection",
    )
    state.became_ready()
    state.drain()
    assert (state.state, state.ready) == ("draining", False)


def test_a_fault_takes_ready_away(state: RuntimeState) -> None:
    state.became_ready()
    state.fault(Stage.REACH, REFUSED)
    assert (state.state, state.ready) == ("waiting", False)


def test_degraded_lists_each_reason_until_it_is_cleared(state: RuntimeState) -> None:
    told = []
    state.listen(lambda changed: told.append(list(changed.snapshot()["degraded"])))
    state.degrade("keep", "keep raised LookupError")
    state.degrade("keep", "keep raised LookupError")
    state.degrade("state", "/x: not a directory")
    state.degrade("keep", None)
    state.degrade("keep", None)
    assert told == [
        ["keep: keep raised LookupError"],
        ["keep: keep raised LookupError", "state: /x: not a directory"],
        ["state: /x: not a directory"],
    ]


def test_a_cause_is_never_without_words() -> None:
    assert Cause(Kind.WAITING, "reset", " ").text == "reset (the other side gave no words)"
