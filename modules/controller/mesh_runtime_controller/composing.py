"""A machine composed whole from its placed modules, or refused with everything that is in the way.

All modules are asked together. One that refuses or does not answer refuses the machine, and no other machine; nothing is left out and
nothing is guessed. What comes back is of the one revision that was read, or it has *moved*.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Union

from pydantic import TypeAdapter, ValidationError

from mesh_runtime.contracts import (
    SECTIONS,
    Composed,
    ComposedSection,
    DeclaredSection,
    Files,
    Machine,
    Missing,
    Refused,
    Unanswered,
    element_digest,
    element_name,
)
from mesh_runtime.contracts.sections import AnySection
from mesh_runtime_controller.catalog import Catalog
from mesh_runtime_controller.changes import Moved
from mesh_runtime_controller.records import MachineView, ModuleRests, Placement, first_fault

AskToCompose = Callable[[str, Machine], Awaitable[Composed | Refused]]
Answer = Composed | Refused | Unanswered


@dataclass(frozen=True, slots=True)
class ComposedMachine:
    """What a machine shall be: its sections, the digest of each element, and what each module's part rests on."""

    view: MachineView
    sections: tuple[DeclaredSection, ...]
    elements: dict[str, str]
    modules: dict[str, ModuleRests]


@dataclass(frozen=True, slots=True)
class _Read:
    """One section of one module, understood: ``keys`` are its elements within the section, with their digests."""

    declared: DeclaredSection
    keys: dict[str, str]


def composing_placements(view: MachineView, catalog: Catalog) -> tuple[Placement, ...]:
    """Placements whose modules compose sections. One that the catalog does not know counts: it must not be left out in silence."""
    return tuple(one for one in view.placements if one.module not in catalog.manifests or catalog.manifests[one.module].sections)


def has_something_to_push(view: MachineView, catalog: Catalog) -> bool:
    """Whether a push of this machine can change anything: what it holds, or what was granted."""
    return bool(composing_placements(view, catalog) or view.held() or ends_of_grants(view, catalog))


def ends_of_grants(view: MachineView, catalog: Catalog) -> tuple[str, ...]:
    """Placements whose end a push of this machine gives effect, and that have grants or give some, as far as the catalog knows."""
    manifests = {module: catalog.manifests.get(module) for module in sorted(view.ends_to_push())}
    return tuple(f"{module}@{view.name}" for module, one in manifests.items() if one is None or one.needs or one.provides)


async def compose_machine(view: MachineView, catalog: Catalog, ask: AskToCompose, controller: str) -> ComposedMachine | Refused:
    """Compose one machine. Raises ``Moved`` if the answers are not all of the revision of ``view``."""
    placements = composing_placements(view, catalog)
    unknown = [one.module for one in placements if one.module not in catalog.manifests]
    if unknown:
        return Refused(code="unknown-module", why="; ".join(catalog.missing(one) for one in unknown), by=controller)
    answers = await asyncio.gather(*(_answer(ask, one, view) for one in placements))
    composed = {one.module: answer for one, answer in zip(placements, answers, strict=True)}
    if (refused := _refusals(composed)) is not None:
        return refused
    whole = {module: answer for module, answer in composed.items() if isinstance(answer, Composed)}
    _check_revision(view, whole, controller)
    merged = _merged(whole, controller)
    if isinstance(merged, Refused):
        return merged
    if (refused := _not_known(view, merged)) is not None:
        return refused
    return ComposedMachine(
        view=view,
        sections=tuple(one.declared for one in merged),
        elements={
            element_name(one.declared.section, one.declared.module, key): digest for one in merged for key, digest in one.keys.items()
        },
        modules={
            one.module: ModuleRests(
                version=whole[one.module].version, parameters=dict(one.parameters), rested=tuple(whole[one.module].rested)
            )
            for one in placements
        },
    )


async def _answer(ask: AskToCompose, placement: Placement, view: MachineView) -> Answer:
    machine = Machine(name=view.name, address=view.address, parameters=dict(placement.parameters))
    try:
        return await ask(placement.module, machine)
    except Unanswered as unanswered:
        return unanswered


def _refusals(composed: dict[str, Answer]) -> Refused | None:
    """One refusal of the machine, from all that refused or were silent."""
    refused = {module: answer for module, answer in composed.items() if not isinstance(answer, Composed)}
    if not refused:
        return None
    missing: list[Missing] = []
    words: list[str] = []
    for module, answer in refused.items():
        if isinstance(answer, Unanswered):
            missing += answer.missing
            words.append(f"{module}: {answer}")
        else:
            missing += answer.unanswered
            words.append(f"{answer.by or module}: {answer.why}")
    codes = {"unanswered" if isinstance(one, Unanswered) else one.code for one in refused.values()}
    return Refused(
        code=codes.pop() if len(codes) == 1 else "unanswered" if missing else "refused",
        why="; ".join(words),
        again=all(isinstance(one, Unanswered) or one.again for one in refused.values()),
        by=", ".join(module if isinstance(answer, Unanswered) else answer.by or module for module, answer in refused.items()),
        unanswered=tuple(dict.fromkeys(missing)),
    )


def _check_revision(view: MachineView, composed: dict[str, Composed], controller: str) -> None:
    said: dict[str, tuple[str, str]] = {}
    for module, answer in composed.items():
        for rested in answer.rested:
            if rested.by == controller and rested.revision != view.mesh.revision:
                raise Moved(f"{rested.question} was answered at revision {rested.revision}, not {view.mesh.revision}")
            fingerprint, other = said.setdefault(rested.question, (rested.fingerprint, module))
            if fingerprint != rested.fingerprint:
                raise Moved(f"{other} and {module} were given two answers to {rested.question}")


def _merged(composed: dict[str, Composed], controller: str) -> Sequence[_Read] | Refused:
    read: list[_Read] = []
    wrong: list[str] = []
    for module, answer in composed.items():
        for section in answer.sections:
            one = _read(module, section)
            if isinstance(one, str):
                wrong.append(one)
            else:
                read.append(one)
    if wrong:
        return Refused(code="malformed-section", why="; ".join(wrong), by=controller)
    if conflicts := [words for one, other in combinations(read, 2) for words in _conflicts(one, other)]:
        return Refused(code="conflict", why="; ".join(conflicts), by=controller)
    return read


def _read(module: str, section: ComposedSection) -> _Read | str:
    """A section as its class understands it, or what is wrong with it."""
    classes = SECTIONS.get(section.section)
    if classes is None:
        return f"{module} composes the section {section.section!r}, which this controller does not know"
    try:
        value: AnySection = _reader(classes).validate_python(section.body)
    except ValidationError as malformed:
        return f"the section {section.section} of {module}: {first_fault(malformed)}"
    elements = value.elements()
    if isinstance(value, Files) and len(elements) < len(value.files):
        return f"the section {section.section} of {module} names one file twice"
    if isinstance(value, Files) and (clashes := _path_clashes(elements, elements)):
        return f"the section {section.section} of {module}: {'; '.join(clashes)}"
    declared = DeclaredSection(module=module, section=section.section, body=value.model_dump(mode="json"))
    return _Read(declared, {key: element_digest(element) for key, element in elements.items()})


def _reader(classes: tuple[type[AnySection], ...]) -> TypeAdapter[Any]:
    union: Any = Union[classes]  # noqa: UP007 - built at run time
    return TypeAdapter(union)


def _conflicts(one: _Read, other: _Read) -> list[str]:
    """Every element that two sections of one name both claim; a file also claims that its path is no directory."""
    section = one.declared.section
    if section != other.declared.section:
        return []
    both = f"{one.declared.module} and {other.declared.module} both claim"
    found = [f"{both} {section} {key}".rstrip() for key in sorted(one.keys.keys() & other.keys.keys())]
    if section == Files.section:
        found += [f"{both} one path: {words}" for words in _path_clashes(one.keys, other.keys)]
    return found


def _path_clashes(paths: Iterable[str], others: Iterable[str]) -> list[str]:
    """Pairs of which one is a directory of the other."""
    pairs = {(min(pair), max(pair)) for pair in product(paths, others)}
    return [f"{outer} and {inner} cannot both be files" for outer, inner in sorted(pairs) if inner.startswith(f"{outer}/")]


def _not_known(view: MachineView, merged: Sequence[_Read]) -> Refused | None:
    knows = () if view.report is None else view.report.knows
    unknown = sorted({f"{one.declared.section} (of {one.declared.module})" for one in merged if one.declared.section not in knows})
    if not unknown:
        return None
    why = f"the host of {view.name} does not know the section {', '.join(unknown)}; it knows {', '.join(knows) or 'none'}"
    return Refused(code="section-not-known", why=why, by=f"host@{view.name}")
