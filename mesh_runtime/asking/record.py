"""The record of questions of one compose: what makes *complete or refused* hold whatever the author's code does.

A question is entered at the moment it is asked, before anything is sent. When the compose returns, every question that has no answer is
missing, also one that was caught, put aside, cut short or never awaited. Asking the same again and getting an answer clears it.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from mesh_runtime.contracts.composing import Rested
from mesh_runtime.contracts.outcomes import Missing, Reason


@dataclass(slots=True)
class Question:
    """One question, however often it was asked: the attempts that no later answer cleared, and every answer that was given.

    An attempt that is open has no ``Missing`` yet. All answers are kept, since an author's code may use an earlier one than the last: one
    that has moved meanwhile must be seen by whoever judges what the compose rests on.
    """

    label: str
    attempts: dict[int, Missing | None] = field(default_factory=dict)
    rested: dict[str, Rested] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def ask(self) -> "Attempt":
        """It is asked, for the first time or again."""
        number = next(self._numbers)
        self.attempts[number] = None
        return Attempt(self, number)

    @property
    def unanswered(self) -> Missing | None:
        """What is missing, or nothing."""
        left = list(self.attempts.values())
        if not left:
            return None
        failed = [one for one in left if one is not None]
        return failed[-1] if failed else Missing(question=self.label, reason=Reason.OPEN, detail="still open when the compose returned")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One time that a question was asked. Numbered in the order of asking, which is what *again* means: not the order of ending."""

    question: Question
    number: int

    def answered(self, rested: Rested) -> None:
        """It was answered: that clears whatever became of the times before."""
        attempts = self.question.attempts
        for earlier in [number for number in list(attempts) if number <= self.number]:
            attempts.pop(earlier, None)
        self.question.rested[f"{rested.by} {rested.outcome} {rested.fingerprint}"] = rested

    def failed(self, missing: Missing) -> None:
        """It ended without an answer; an answer to an earlier one does not excuse it."""
        if self.number in self.question.attempts:
            self.question.attempts[self.number] = missing


@dataclass(slots=True, eq=False)
class QuestionRecord:
    """Questions in the order in which they were first asked. Entered from any thread: each step is one atomic operation of a ``dict``."""

    module: str
    questions: dict[str, Question] = field(default_factory=dict)

    def enter(self, key: str, label: str) -> Attempt:
        """A question is asked. ``key`` is what makes it the same question, ``label`` is for people."""
        return self.questions.setdefault(key, Question(label)).ask()

    def unanswered(self) -> tuple[Missing, ...]:
        """Every question without an answer."""
        return tuple(missing for one in list(self.questions.values()) if (missing := one.unanswered) is not None)

    def rested(self) -> tuple[Rested, ...]:
        """Every answer that the compose rests on."""
        return tuple(rested for one in list(self.questions.values()) for rested in list(one.rested.values()))
