"""Compose: the controller asks a module for its sections of one machine's declaration."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mesh_runtime.contracts.base import Ask
from mesh_runtime.contracts.outcomes import Outcome, Refused


class Machine(BaseModel):
    """The machine that is composed for: its name, its overlay address, and the parameters of the placement that asks for it."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    name: str
    address: str
    parameters: dict[str, str] = Field(default_factory=dict)


class Rested(BaseModel):
    """An answer on which a compose rests. ``fingerprint`` is the SHA-256 of the answer, so that a moved answer is seen.

    A refusal is one where the contract allows it: its author goes on without what was refused. Its words are no part of the fingerprint.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    question: str
    outcome: Literal["found", "absent", "refused"]
    by: str
    revision: int
    fingerprint: str


class ComposedSection(BaseModel):
    """A section by its name, with its body as it will stand in the declaration."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    section: str
    body: dict[str, Any]


class Composed(Outcome):
    """All sections that the module's annotation promises, and every answer that they rest on."""

    outcome: Literal["composed"] = "composed"
    sections: tuple[ComposedSection, ...]
    rested: tuple[Rested, ...]
    version: str


class Compose(Ask[Composed | Refused]):
    """The controller's ask to one module: its key is ``compose.MODULE``. Answered whole, or refused."""

    level = "compose"

    machine: Machine
