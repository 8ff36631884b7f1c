"""What a push would change: the difference between what is composed and what the machine reported, with a fingerprint.

The fingerprint covers intent, answers, sections and what is held. It leaves out revisions, which move with things that change nothing here,
and the operator's word on removals, which is added to a plan that asked for it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from mesh_runtime.contracts import Refused, Removal
from mesh_runtime.contracts.operating import Change, MachinePlan
from mesh_runtime_controller.catalog import Catalog
from mesh_runtime_controller.composing import ComposedMachine, ends_of_grants
from mesh_runtime_controller.records import MachineView
from mesh_runtime_controller.removing import removals


def plan_of(composed: ComposedMachine, catalog: Catalog) -> MachinePlan:
    """The changes of one machine. Removals without evidence are listed, and refused."""
    held = composed.view.held()
    removed = removals(composed, ())
    explained = {} if isinstance(removed, Refused) else {one.element: f"{one.evidence}: {one.detail}" for one in removed}
    changes = []
    for element in sorted(held.keys() | composed.elements.keys()):
        if element not in composed.elements:
            changes.append(Change(element=element, change="remove", evidence=explained.get(element, "")))
        elif element not in held:
            changes.append(Change(element=element, change="add"))
        elif held[element] != composed.elements[element] or element in _not_in_force(composed.view):
            changes.append(Change(element=element, change="change"))
    return MachinePlan(
        machine=composed.view.name,
        changes=tuple(changes),
        ends=ends_of_grants(composed.view, catalog),
        refused=removed if isinstance(removed, Refused) else None,
    )


def is_in_force(composed: ComposedMachine, removed: Sequence[Removal]) -> bool:
    """Whether the machine reported just this, and nothing that was declared since can still come over it."""
    view = composed.view
    if view.report is None or removed or view.held() != composed.elements or _not_in_force(view):
        return False
    if not view.declared:
        return not composed.sections  # it was never told anything, and there is nothing to tell
    reported = view.report.epoch, view.report.generation
    return all((one.epoch, one.generation) <= reported or not one.may_be_taken for one in view.declared)


def fingerprint_of(machines: Mapping[str, ComposedMachine | Refused]) -> str:
    """SHA-256 over what the plan of these machines rests on."""
    parts = {name: _part(one) for name, one in machines.items()}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _part(one: ComposedMachine | Refused) -> Any:
    if isinstance(one, Refused):
        return {"refused": one.code}
    return {
        "address": one.view.address,
        "sections": [section.model_dump(mode="json") for section in one.sections],
        "modules": {
            name: {
                "version": rests.version,
                "parameters": rests.parameters,
                "rested": sorted([rested.question, rested.outcome, rested.fingerprint] for rested in rests.rested),
            }
            for name, rests in one.modules.items()
        },
        "held": one.view.held(),
        "ended": dict(one.view.ended),
    }


def _not_in_force(view: MachineView) -> set[str]:
    """Elements that the machine reported as anything but in force or removed."""
    return set() if view.report is None else {one.element for one in view.report.elements if one.state not in ("in-force", "removed")}
