"""What a host's report says about one declaration. In force is only what the host has seen, element by element; silence is no success."""

from mesh_runtime.contracts import ElementReport, Refused, Report, Statement
from mesh_runtime.contracts.operating import MachineOutcome


def judge(report: Report, statement: Statement, elements: dict[str, str]) -> MachineOutcome:
    """The outcome of a declaration, given the report of its generation. ``elements`` are what it declared, with digests."""
    by = f"host@{report.machine}"
    common = {"machine": report.machine, "generation": statement.generation, "by": by}
    if report.verdict == "refused":
        refused = Refused(code="host-refused", why=report.why or "the host gave no reason", by=by)
        return MachineOutcome(**common, verdict="refused", why=refused.why, refused=refused, elements=report.elements)
    removes = {one.element for one in statement.removes}
    said = {one.element: one for one in report.elements}
    judged = [_declared(element, digest, said.get(element)) for element, digest in sorted(elements.items())]
    judged += [_removed(element, said[element]) for element in sorted(removes) if element in said]
    judged += [one for one in report.elements if one.element not in elements and one.element not in removes]
    wrong = [one for one in judged if one.state not in ("in-force", "removed")]
    if wrong or report.verdict == "failed":
        why = "; ".join(f"{one.element}: {one.state}" + (f", {one.detail}" if one.detail else "") for one in wrong)
        return MachineOutcome(**common, verdict="failed", why=why or report.why or "the host gave no reason", elements=tuple(judged))
    return MachineOutcome(**common, verdict="in-force", elements=tuple(judged))


def _declared(element: str, digest: str, said: ElementReport | None) -> ElementReport:
    if said is None:
        return ElementReport(element=element, state="failed", detail="the host's report does not name it")
    if said.state == "removed":
        return said.model_copy(update={"state": "failed", "detail": "the host removed what was declared"})
    if said.state == "in-force" and said.digest and said.digest != digest:
        return said.model_copy(update={"state": "failed", "detail": "what is in force is not what was declared"})
    return said


def _removed(element: str, said: ElementReport) -> ElementReport:
    if said.state == "in-force":
        return said.model_copy(update={"state": "failed", "detail": said.detail or "it was to be removed and is there still"})
    return said
