"""What is printed names everything that somebody must know; which exit a push has."""

import pytest
from rich.console import Console, RenderableType

from mesh_runtime.contracts import ElementReport, Missing, Reason, Refused
from mesh_runtime.contracts.operating import Change, MachineOutcome, MachinePlan, MachineVerdict, Planned, Pushed
from mesh_runtime_operator import showing
from mesh_runtime_operator.cli import verdict_of
from mesh_runtime_operator.exits import WORDS, Exit

STORE = Missing(question="store-reachable-from(machine='alpha')", reason=Reason.NOBODY, detail="312")
REFUSED = Refused(code="unanswered", why="networking cannot be composed", again=True, by="networking@alpha", unanswered=(STORE,))


def text_of(shown: RenderableType) -> str:
    console = Console(width=300, soft_wrap=True)
    with console.capture() as captured:
        console.print(shown, markup=False, highlight=False)
    return captured.get()


def test_a_refusal_says_whom_by_whom_why_and_each_question() -> None:
    shown = text_of(showing.pushed(Pushed(machines=(MachineOutcome(machine="alpha", verdict="refused", refused=REFUSED),))))
    assert "alpha: refused by networking@alpha: networking cannot be composed [unanswered]" in shown
    assert "unanswered: store-reachable-from(machine='alpha'): nobody (312)" in shown
    assert "trying again can help" in shown


def test_a_failed_element_is_shown_with_its_reason() -> None:
    element = ElementReport(element="files/motd/etc/motd", state="failed", detail="a [directory] stands there")
    shown = text_of(
        showing.pushed(Pushed(machines=(MachineOutcome(machine="alpha", verdict="failed", generation=3, elements=(element,)),)))
    )
    assert "alpha: failed at generation 3" in shown
    assert "failed files/motd/etc/motd: a [directory] stands there" in shown


def test_a_plan_shows_each_change_and_its_evidence() -> None:
    changes = (Change(element="files/a", change="add"), Change(element="files/b", change="remove", evidence="absent: no store"))
    shown = text_of(showing.planned(Planned(machines=(MachinePlan(machine="alpha", changes=changes),), fingerprint="f1")))
    assert "  + files/a\n  - files/b  (absent: no store)\nfingerprint f1" in shown


def test_a_plan_shows_whose_grants_would_end() -> None:
    ends = MachinePlan(machine="alpha", ends=("orders@alpha",))
    shown = text_of(showing.planned(Planned(machines=(ends,), fingerprint="f1")))
    assert shown == "alpha: no element would change\n  - grants of orders@alpha  (its placement ended)\nfingerprint f1\n"
    assert "nothing would change" in text_of(showing.planned(Planned(machines=(MachinePlan(machine="alpha"),), fingerprint="f1")))


def test_states_show_who_does_not_run() -> None:
    waiting = {
        "state": "waiting",
        "stage": "reach",
        "cause": {"text": "refused"},
        "since": "now",
        "attempts": 4,
        "degraded": ["keep: raised"],
    }
    shown = text_of(showing.states_table({"host@alpha": waiting, "web@alpha": {"state": "not running", "why": "no socket"}}))
    assert "host@alpha" in shown
    assert "degraded: keep: raised" in shown
    assert "not running" in shown
    assert "no socket" in shown


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (("in-force", "unchanged"), Exit.DONE),
        (("in-force", "unheard"), Exit.UNHEARD),
        (("unheard", "failed"), Exit.FAILED),
        (("failed", "refused", "in-force"), Exit.REFUSED),
        ((), Exit.NOTHING_TO_DO),
    ],
)
def test_a_push_ends_by_its_worst_machine(verdicts: tuple[MachineVerdict, ...], code: Exit) -> None:
    machines = tuple(MachineOutcome(machine=f"m{number}", verdict=verdict) for number, verdict in enumerate(verdicts))
    assert verdict_of(Pushed(machines=machines)) is code


def test_each_exit_code_has_its_words() -> None:
    assert WORDS.keys() == set(Exit)
