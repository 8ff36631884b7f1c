"""How an ask can end. None of these has a truth value, a length or an iterator: ``if answer`` and ``answer or []`` raise.

``Found`` and ``Absent`` are facts about the mesh, given by an identified answerer at a revision of its knowledge. ``Refused`` says that
it will not be done and whether trying again can help. That nobody answered is none of these: it is the error ``Unanswered``.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Generic, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict

V = TypeVar("V", covariant=True)


class Outcome(BaseModel):
    """The base of outcomes: a value to be matched, never to be tested for truth."""

    model_config = ConfigDict(defer_build=True, frozen=True, hide_input_in_errors=True)

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} has no truth value: match it against Found, Absent or Refused")

    def __iter__(self) -> NoReturn:  # pydantic would iterate over the fields: a trap where a value is meant
        raise TypeError(f"{type(self).__name__} cannot be iterated: match it, then iterate its value")


class Found(Outcome, Generic[V]):
    """It is so. ``by`` is the identity that answered (set by the asker's side from the broker-validated login), ``revision`` of its
    knowledge.
    """

    outcome: Literal["found"] = "found"
    value: V
    revision: int
    by: str = ""


class Absent(Outcome):
    """It is a fact that there is none. ``by`` and ``revision`` as in ``Found``."""

    outcome: Literal["absent"] = "absent"
    revision: int
    by: str = ""


class Reason(StrEnum):
    """Why a question has no answer."""

    NOBODY = "nobody"
    TIME_OUT = "time-out"
    REFUSED = "refused"
    MALFORMED = "malformed"
    LATE = "late"
    SESSION_LOST = "session-lost"
    PARTIAL = "partial"
    OPEN = "open"


class Missing(BaseModel):
    """One question that has no answer: which, why, in words. ``OPEN`` is one that was still unanswered when its compose returned."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    question: str
    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.question}: {self.reason}" + (f" ({self.detail})" if self.detail else "")


class Refused(Outcome):
    """It will not be done: ``code`` is stable, ``why`` is for people, ``again`` says whether trying again can help.

    ``unanswered`` lists every question on which the refusal rests, if it rests on some.
    """

    outcome: Literal["refused"] = "refused"
    code: str
    why: str
    again: bool = False
    by: str = ""
    unanswered: tuple[Missing, ...] = ()


class Unanswered(Exception):
    """One or several questions have no answer. Never *absent*: whoever catches it has learned nothing about the mesh."""

    def __init__(self, missing: Sequence[Missing]) -> None:
        super().__init__("; ".join(str(one) for one in missing))
        self.missing = tuple(missing)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reason of each question, in order."""
        return tuple(one.reason for one in self.missing)


class LevelError(RuntimeError):
    """A handler asked at its own level or above: a mistake in the module's code."""
