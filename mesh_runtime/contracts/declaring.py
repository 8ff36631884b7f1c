"""Declarations and reports: what a machine shall be, signed by the controller, and what it is, told by its host.

What the controller signs is the *bytes* of ``SignedDeclaration.statement``; the host parses just these bytes after it has verified them.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from mesh_runtime.contracts.base import Tell

EvidenceKind = Literal["retirement", "absent", "placement-ended", "module-version", "operator"]


class DeclaredSection(BaseModel):
    """One module's section in a declaration."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    module: str
    section: str
    body: dict[str, Any]


class Removal(BaseModel):
    """An element that a declaration takes away, with the evidence that it should go."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    element: str
    evidence: EvidenceKind
    detail: str


class Statement(BaseModel):
    """What is signed. A greater (epoch, generation) wins.

    What the host holds and what is neither present here nor named in ``removes`` makes it refuse the whole.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    mesh: str
    machine: str
    epoch: int
    generation: int
    revision: int
    sections: tuple[DeclaredSection, ...]
    removes: tuple[Removal, ...] = ()


class SignedDeclaration(Tell, told_by="controller"):
    """``statement`` is the JSON of a ``Statement``, ``signature`` is Ed25519 over its UTF-8 bytes, in base64."""

    statement: str
    signature: str


ElementState = Literal["in-force", "failed", "removed", "stale"]
Verdict = Literal["in-force", "failed", "refused", "standing"]


class ElementReport(BaseModel):
    """One element as it was seen after the act. ``digest`` is the ``element_digest`` of what is in force, or empty.

    ``element`` is its ``element_name``.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    element: str
    state: ElementState
    detail: str = ""
    digest: str = ""


class Report(Tell, told_by="host"):
    """What is in force on a machine, element by element.

    ``verdict`` is about the generation named: ``in-force`` (all of it, seen again after the act), ``failed`` (some element is not),
    ``refused`` (nothing of it was done: ``why``), ``standing`` (no new declaration: what stands since the last one, told at start and
    after a drift). A refused declaration that is not believed or cannot be read has no generation that means anything: it is told as 0, 0.

    ``elements`` are all that the host holds (and those just removed), of whatever generation; ``knows`` are the names of the sections that
    it can apply. A host that has applied nothing yet tells generation 0 at its start, so that the controller knows what it knows; it knows
    no mesh then, and ``mesh`` is empty, also where it refuses its first declaration. A refusal is about the declaration of its generation,
    not about what stands; it is told as 0, 0 if that declaration could not be believed, read or stored, or is not this machine's.

    ``number`` grows with each look at the machine, also over restarts of the host: of two reports of one generation, the greater number was
    seen later, in whatever order they arrive.
    """

    machine: str
    mesh: str
    epoch: int
    generation: int
    number: int = 0
    verdict: Verdict
    why: str = ""
    elements: tuple[ElementReport, ...]
    knows: tuple[str, ...]
