"""One error for settings that are wrong in themselves, in one line that an operator can act on."""

from collections.abc import Iterable
from dataclasses import dataclass

from mesh_runtime.logging import mask_text

_MAX_REASON = 300


@dataclass(frozen=True, slots=True)
class Complaint:
    """One variable, what is wrong with it, and a value that would be right."""

    variable: str
    wrong: str
    right: str = ""

    def __str__(self) -> str:
        wrong = mask_text(" ".join(self.wrong.split()))
        wrong = wrong if len(wrong) <= _MAX_REASON else f"{wrong[:_MAX_REASON]}…"
        return f"{self.variable}: {wrong}" + (f" (right would be, for example: {self.right})" if self.right else "")


class MalformedSetting(Exception):
    """One or several settings are wrong in themselves, and no waiting will mend them. The process ends with exit 78.

    Its text is one line: for each variable its name, what is wrong and what would be right; never a secret value.
    `variables` names them.
    """

    def __init__(self, complaints: Iterable[Complaint]) -> None:
        self.complaints = tuple(complaints)
        self.variables = tuple(each.variable for each in self.complaints)
        super().__init__("; ".join(str(each) for each in self.complaints))
