"""The record of questions of one compose: what makes *complete or refused* hold whatever the author's code does.

A question is entered at the moment it is asked, before anything is sent. When the compose returns, every question that has no answer is
missing, also one that was caught, put aside, cut short or never awaited. Asking the same again and getting an answer clears it.
"""

from dataclasses import dataclass, field

from mesh_runtime.contracts.composing import Rested
from mesh_runtime.contracts.outcomes import Missing, Reason


@dataclass(slots=True)
class Question:
    """One question, however often it was asked: attempts still open, the last failure that no later answer cleared, the last answer."""

    label: str
    open: int = 0
    missing: Missing | None = None
    rested: Rested | None = None

    def answered(self, rested: Rested) -> None:
        """An attempt was answered: that clears an earlier failure."""
        self.open -= 1
        self.missing, self.rested = None, rested

    def failed(self, missing: Missing) -> None:
        """An attempt ended without an answer; an earlier answer does not excuse it."""
        self.open -= 1
        self.missing = missing

    @property
    def unanswered(self) -> Missing | None:
        """What is missing, or nothing."""
        if self.missing is None and self.open:
            return Missing(question=self.label, reason=Reason.OPEN, detail="still open when the compose returned")
        return self.missing


@dataclass(slots=True, eq=False)
class QuestionRecord:
    """Questions in the order in which they were first asked. Entered from any thread: each step is one atomic operation."""

    module: str
    questions: dict[str, Question] = field(default_factory=dict)

    def enter(self, label: str) -> Question:
        """A question is asked. The same question again stands in the same place."""
        question = self.questions.setdefault(label, Question(label))
        question.open += 1
        return question

    def unanswered(self) -> tuple[Missing, ...]:
        """Every question without an answer."""
        return tuple(missing for one in list(self.questions.values()) if (missing := one.unanswered) is not None)

    def rested(self) -> tuple[Rested, ...]:
        """Every answer that the compose rests on."""
        return tuple(one.rested for one in list(self.questions.values()) if one.rested is not None)
