"""What a declaration takes away, each with its evidence. Nothing is ever removed by being left out.

An element that the machine holds and that is no longer composed goes only if there is positive evidence that it should: its placement
ended, the operator named it, changed the placement or moved the store that its module has asked for, an answer is now *absent* that was not
when it was last declared, or another version of its module composes. Else the machine is refused, and every such element is named.
"""

from collections.abc import Sequence

from mesh_runtime.contracts import Refused, Removal, StoreReachableFrom
from mesh_runtime_controller.composing import ComposedMachine
from mesh_runtime_controller.records import Declared, MachineView, ModuleRests


def removals(composed: ComposedMachine, named: Sequence[str]) -> tuple[Removal, ...] | Refused:
    """What goes, and why; or the refusal that names what would go for no reason."""
    held = composed.view.held()
    staying = sorted(set(named) & held.keys() & composed.elements.keys())
    if staying:
        why = f"{', '.join(staying)} cannot be removed from {composed.view.name}: it is composed still; remove its placement"
        return Refused(code="still-composed", why=why)
    going = [element for element in sorted(held) if element not in composed.elements]
    found = {element: evidence(composed, element, named) for element in going}
    unexplained = [element for element, removal in found.items() if removal is None]
    if unexplained:
        how = " ".join(f"--remove {element}" for element in unexplained)
        why = (
            f"{len(unexplained)} of the {len(held)} elements that {composed.view.name} holds would go, and nothing says that they should: "
            f"{', '.join(unexplained)}; if they should, say so: mesh push {how}"
        )
        return Refused(code="unexplained-removal", why=why)
    return tuple(removal for removal in found.values() if removal is not None)


def evidence(composed: ComposedMachine, element: str, named: Sequence[str]) -> Removal | None:
    """Why one element should go, or nothing."""
    view, module = composed.view, element.split("/")[1]
    if module not in {one.module for one in view.placements}:
        if module in view.ended:
            return Removal(element=element, evidence="placement-ended", detail=f"{module}@{view.name} at revision {view.ended[module]}")
        return _named(element, named)
    if element in named:
        return _named(element, named)
    last = _last_with(view, element)
    if last is None or module not in last.modules or module not in composed.modules:
        return None
    then, now = last.modules[module], composed.modules[module]
    were_absent = {one.question for one in then.rested if one.outcome == "absent"}
    for one in now.rested:
        if one.outcome == "absent" and one.question not in were_absent:
            return Removal(element=element, evidence="absent", detail=f"{one.question}, said {one.by} at revision {one.revision}")
    if then.parameters != now.parameters:
        since = next(one.since_revision for one in view.placements if one.module == module)
        return Removal(element=element, evidence="operator", detail=f"the parameters of {module}@{view.name} changed at revision {since}")
    if then.version != now.version:
        return Removal(element=element, evidence="module-version", detail=f"{module} went from {then.version} to {now.version}")
    store = view.store
    if store is not None and store.since_revision > last.revision and _told_otherwise_of_the_store(then, now):
        moved = (
            f"the placement of store@{store.machine} changed at revision {store.since_revision}, and {module} rests on where the store is"
        )
        return Removal(element=element, evidence="operator", detail=moved)
    return None


def _told_otherwise_of_the_store(then: ModuleRests, now: ModuleRests) -> bool:
    """Whether the controller gave two answers to one question that a module asked both times: where the store is."""
    asked = f"{StoreReachableFrom.contract}("
    before, after = (
        {one.question: one.fingerprint for one in rests.rested if one.question.startswith(asked) and one.by.startswith("controller@")}
        for rests in (then, now)
    )
    return any(before[question] != after[question] for question in before.keys() & after.keys())


def _named(element: str, named: Sequence[str]) -> Removal | None:
    return Removal(element=element, evidence="operator", detail="named by the operator") if element in named else None


def _last_with(view: MachineView, element: str) -> Declared | None:
    return next((one for one in reversed(view.declared) if element in one.elements), None)
