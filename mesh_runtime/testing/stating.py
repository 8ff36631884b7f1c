"""What a test states about an ask: how it is answered, or in which way it goes unanswered. Shared by the responder and the stand-in mesh.

What cannot be is refused when it is stated, with all reasons at once: an outcome that the contract of the ask does not have, or a way of
failing that the one who would have to do it cannot do.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mesh_runtime.asking.outcome import outcome_classes
from mesh_runtime.contracts.base import Ask
from mesh_runtime.contracts.outcomes import Absent, Outcome, Refused


class Failing(StrEnum):
    """A way in which an ask goes wrong."""

    NOBODY = "nobody"
    """Nobody answers such asks: the broker returns it at once."""
    NEVER = "never"
    """It arrives and no answer is given."""
    REFUSED = "refused"
    """The answerer refuses it."""
    ERROR = "error"
    """The answerer's handler raised; its library answers for it."""
    MALFORMED = "malformed"
    """The answer is no outcome of this ask."""
    LATE = "late"
    """The answer comes after the budget: it says *absent*, which must not be believed."""
    SESSION_LOST = "session-lost"
    """The asker's session ends while the ask is in flight."""


@dataclass(frozen=True, slots=True)
class Twice:
    """It is answered, and then answered again, by the second outcome if there is one."""

    outcome: Outcome
    again: Outcome | None = None


Stated = Outcome | Failing | Twice | bytes
"""``bytes`` are the body of the answer, as they are."""

Answering = Stated | Callable[[Any], Stated]
"""A function is called with the ask."""

MALFORMED_BODY = b'{"outcome": "found", "value": '


class CannotBe(ValueError):
    """What a test states cannot be; the message lists every reason."""


def check_stated(answers: Mapping[type[Ask[Any]], Answering], without: Iterable[Failing] = ()) -> None:
    """Raise CannotBe if some of it cannot be; ``without`` are ways of failing that cannot be done here."""
    wrong = [f"{ask.__name__}: {reason}" for ask, stated in answers.items() for reason in reasons_against(ask, stated, without)]
    if wrong:
        raise CannotBe("; ".join(wrong))


def reasons_against(ask: type[Ask[Any]], stated: Answering, without: Iterable[Failing] = ()) -> list[str]:
    """Why it cannot be stated of this ask; nothing if it can. What a function will say is not known yet."""
    if isinstance(stated, Failing):
        return [f"{stated} cannot be done here"] if stated in without else []
    if isinstance(stated, bytes) or not isinstance(stated, Outcome | Twice):
        return []
    outcomes = [stated] if isinstance(stated, Outcome) else [stated.outcome, *([stated.again] if stated.again is not None else [])]
    allowed = outcome_classes(ask)
    names = " or ".join(one.__name__.partition("[")[0] for one in allowed)
    return [
        f"its outcome cannot be {type(one).__name__}, only {names}"
        for one in outcomes
        if not isinstance(one, Refused) and not any(_is_of(one, kind) for kind in allowed)
    ]


def _is_of(outcome: Outcome, kind: type) -> bool:
    """``Found(...)`` is of ``Found[Anything]``: its value is checked where it is read."""
    plain = kind.__pydantic_generic_metadata__["origin"] or kind if hasattr(kind, "__pydantic_generic_metadata__") else kind
    return isinstance(outcome, kind | plain)


def bodies_of(stated: Stated, who: str) -> list[bytes]:
    """The bodies of the answers that are sent, in order; none for what is never answered. ``who`` answers."""
    match stated:
        case bytes():
            return [stated]
        case Twice(outcome=first, again=second):
            return [_json(first), _json(second if second is not None else first)]
        case Outcome():
            return [_json(stated)]
        case Failing.REFUSED:
            return [_json(Refused(code="stated", why=f"{who} was told to refuse it"))]
        case Failing.ERROR:
            return [_json(Refused(code="error", why=f"a handler of {who} raised RuntimeError: it was told to", again=True))]
        case Failing.MALFORMED:
            return [MALFORMED_BODY]
        case Failing.LATE:
            return [_json(Absent(revision=1))]
        case Failing.NOBODY | Failing.NEVER | Failing.SESSION_LOST:
            return []


def _json(outcome: Outcome) -> bytes:
    return outcome.model_dump_json().encode()


def stated_for(answers: Mapping[type[Ask[Any]], Answering], ask: Ask[Any]) -> Stated | None:
    """What was stated about this ask; nothing if nothing was."""
    stated = answers.get(type(ask))
    return stated(ask) if callable(stated) else stated
