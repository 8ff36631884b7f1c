"""Operators' acts: tool asks, answered by the controller, accepted from ``operator@MACHINE`` alone."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mesh_runtime.contracts.base import Tool
from mesh_runtime.contracts.declaring import ElementReport
from mesh_runtime.contracts.outcomes import Outcome, Refused


class Placed(Outcome):
    """The placement is recorded; it takes effect by the next push."""

    outcome: Literal["placed"] = "placed"
    revision: int
    changed: bool


class Place(Tool[Placed | Refused], answered_by="controller"):
    """Record that ``module`` is placed on ``machine`` with these parameters. The same again changes nothing.

    ``key`` is the public X25519 key of the placement (64 hex digits), to which its grants are sealed; empty: as it is recorded, or none.
    """

    module: str
    machine: str
    parameters: dict[str, str] = Field(default_factory=dict)
    key: str = ""


class Removed(Outcome):
    """The placement is ended; it takes effect by the next push."""

    outcome: Literal["removed"] = "removed"
    revision: int


class Remove(Tool[Removed | Refused], answered_by="controller"):
    """End a placement."""

    module: str
    machine: str


class Rekeyed(Outcome):
    """The key that is recorded for the identity is ``key`` now; empty: none, the next that it presents is taken."""

    outcome: Literal["rekeyed"] = "rekeyed"
    revision: int
    changed: bool
    key: str = ""


class Rekey(Tool[Rekeyed | Refused], answered_by="controller"):
    """Forget the key that is recorded for a placement, or record ``key`` instead. The same again changes nothing."""

    identity: str
    key: str = ""


class Change(BaseModel):
    """What a push would do to one element."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    element: str
    change: Literal["add", "change", "remove"]
    evidence: str = ""


class MachinePlan(BaseModel):
    """The difference to what the machine reported, or the refusal in its way.

    ``ends`` are placements there whose end takes effect by the push, and with it the end of what they were granted, or have granted.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    machine: str
    changes: tuple[Change, ...] = ()
    ends: tuple[str, ...] = ()
    refused: Refused | None = None


class Planned(Outcome):
    """``fingerprint`` covers the intent and the answers that the plan rests on."""

    outcome: Literal["planned"] = "planned"
    machines: tuple[MachinePlan, ...]
    fingerprint: str


class Plan(Tool[Planned | Refused], answered_by="controller"):
    """What a push would change. No machines named: all that have placements."""

    machines: tuple[str, ...] = ()


MachineVerdict = Literal["in-force", "unchanged", "refused", "failed", "unheard"]


class MachineOutcome(BaseModel):
    """What came of a push on one machine: in force, refused (by whom, why), failed (which element), or unheard since."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    machine: str
    verdict: MachineVerdict
    generation: int = 0
    by: str = ""
    why: str = ""
    refused: Refused | None = None
    since: str = ""
    elements: tuple[ElementReport, ...] = ()


class Pushed(Outcome):
    """An outcome for every machine that was asked for."""

    outcome: Literal["pushed"] = "pushed"
    machines: tuple[MachineOutcome, ...]


class Push(Tool[Pushed | Refused], answered_by="controller"):
    """Give intent effect. ``plan`` is a fingerprint that must still hold; ``remove`` is the operator's word for elements to take away;
    ``patience`` is how long to wait for reports, in seconds."""

    machines: tuple[str, ...] = ()
    plan: str = ""
    remove: tuple[str, ...] = ()
    patience: float = 30.0
