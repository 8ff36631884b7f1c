"""Compose: a module's sections of one machine, whole, or a refusal that names everything in the way.

The return annotation of ``compose`` is the declaration of its sections; each answer is checked against it. However the author's code
ends, a question of this compose that has no answer refuses it: the result is thrown away and the refusal lists every such question. No
option turns this off.
"""

import asyncio
import inspect
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, get_args, get_origin

import structlog
from pydantic import TypeAdapter, ValidationError

from mesh_runtime.asking import Asker, QuestionRecord, Scope, scoped
from mesh_runtime.asking.outcome import members_of
from mesh_runtime.asking.words import complaint_of, words_of
from mesh_runtime.contracts.base import ContractError, Section
from mesh_runtime.contracts.composing import Composed, ComposedSection, Machine
from mesh_runtime.contracts.outcomes import Missing, Refused, Unanswered

log = structlog.stdlib.get_logger(__name__)

#: Of the budget of a compose, the part that the author's code may use, so that the refusal of a slow one still arrives in time.
AUTHORS_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class Slot:
    """One section that a compose returns: its name, and the classes of which one stands there."""

    section: str
    classes: tuple[type[Section], ...]

    def read(self, value: object) -> ComposedSection:
        """``value`` as it travels; raises ``TypeError`` or ``ValueError`` if it is none of this slot's classes, or not sound as such."""
        if not isinstance(value, self.classes):
            names = " or ".join(one.__name__ for one in self.classes)
            raise TypeError(f"section {self.section} must be {names}, not {type(value).__name__}")
        declared = next(one for one in self.classes if isinstance(value, one))
        sound = TypeAdapter(declared).validate_json(value.model_dump_json(warnings="none"))
        return ComposedSection(section=self.section, body=sound.model_dump(mode="json"))


def slots_of(compose: Callable[..., Any]) -> tuple[Slot, ...]:
    """The sections that a ``compose`` method promises by its return annotation.

    Raises ``ContractError``, when the class is loaded, if the annotation is missing or is no ``Section``, tuple of sections or ``|
    Refused`` of these.
    """
    where = f"{compose.__qualname__}()"
    if not inspect.iscoroutinefunction(compose):
        raise ContractError(f"{where} must be `async def`: what may block in it belongs into asyncio.to_thread")
    annotation = typing.get_type_hints(compose, include_extras=True).get("return")
    if annotation is None:
        raise ContractError(f"{where} has no return annotation: write the sections that it composes, as `-> Overlay | Refused`")
    parts = [part for part in members_of_union(annotation) if part is not Refused]
    tuples = [part for part in parts if get_origin(part) is tuple]
    if tuples and len(parts) > 1:
        raise ContractError(f"{where} returns a tuple or something else: write one tuple of sections, `| Refused` beside it")
    slots = [_slot(where, part) for part in get_args(tuples[0])] if tuples else [_slot(where, *parts)]
    names = [slot.section for slot in slots]
    if len(set(names)) < len(names):
        raise ContractError(f"{where} returns one section twice: {', '.join(sorted(names))}")
    return tuple(slots)


def members_of_union(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, with tuples left whole."""
    return (annotation,) if get_origin(annotation) is tuple else members_of(annotation)


def _slot(where: str, *annotations: Any) -> Slot:
    classes: tuple[Any, ...] = tuple(one for annotation in annotations for one in members_of(annotation))
    wrong = [one for one in classes if not (isinstance(one, type) and issubclass(one, Section))]
    if wrong or not classes:
        raise ContractError(f"{where}: {wrong[0] if wrong else 'nothing'} is no Section; return sections, or a tuple of them, or Refused")
    names = {one.section for one in classes}
    if len(names) > 1:
        raise ContractError(f"{where}: a union must be of one section, not of {', '.join(sorted(names))}; use a tuple for several")
    return Slot(names.pop(), classes)


@dataclass(frozen=True, slots=True)
class Composer:
    """Runs one module's ``compose`` under the record of its questions."""

    module: str
    version: str
    slots: tuple[Slot, ...]
    asker: Asker
    compose: Callable[[Machine], Awaitable[Any]]

    async def __call__(self, machine: Machine, scope: Scope) -> Composed | Refused:
        """The module's sections of ``machine``, or why not. Lets no exception of the author's out unless nothing else is in the way."""
        record = QuestionRecord(self.module)
        self.asker.composes.add(record)
        try:
            with scoped(replace(scope, what=f"compose of {self.module}", record=record)):
                result = await self._authors(machine, scope, record)
        finally:
            self.asker.composes.discard(record)
        missing = record.unanswered()
        if missing or isinstance(result, Refused):
            return self._refused(result, missing)
        return self._checked(result, record)

    async def _authors(self, machine: Machine, scope: Scope, record: QuestionRecord) -> Any:
        """What the author's code returned, or what its end means. Part of the message boundary: it raises again what it was, unless
        unanswered questions are the better reason, or it is this very task that is cancelled."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        limit = None if scope.deadline is None else loop.time() + (scope.deadline - loop.time()) * AUTHORS_SHARE
        running = asyncio.timeout_at(limit)
        try:
            async with running:
                return await self.compose(machine)
        except Unanswered as unanswered:
            return Refused(code="unanswered", why=str(unanswered), again=True, unanswered=unanswered.missing)
        except BaseException as error:  # an author's code may raise anything; what is not kept as a reason is raised again
            if running.expired() and isinstance(error, TimeoutError):
                return Refused(code="time-out", why=f"compose of {self.module} did not end within its budget", again=True)
            cancelled = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
            if cancelled or isinstance(error, GeneratorExit) or not record.unanswered():
                raise
            log.error("a compose raised beside its unanswered questions", module=self.module, exc_info=error)
            return Refused(code="error", why=words_of(error), again=True)

    def _refused(self, result: object, missing: tuple[Missing, ...]) -> Refused:
        said = result if isinstance(result, Refused) else None
        if not missing and said is not None:
            return said
        known = {one.question for one in missing}
        claimed: tuple[Missing, ...] = () if said is None else said.unanswered
        listed = missing + tuple(one for one in claimed if one.question not in known)
        why = "; ".join(str(one) for one in listed)
        if said is not None and said.code != "unanswered":
            why += f"; and beside that: {said.code}: {said.why}"
        log.error("a compose is refused: questions went unanswered", module=self.module, unanswered=[str(one) for one in listed])
        code = said.code if said is not None and said.code == "time-out" else "unanswered"
        return Refused(code=code, why=f"{self.module} cannot be composed, unanswered: {why}", again=True, unanswered=listed)

    def _checked(self, result: object, record: QuestionRecord) -> Composed | Refused:
        values = result if isinstance(result, tuple) else (result,)
        if len(values) != len(self.slots):
            return self._short(f"it returned {len(values)} sections, its annotation promises {len(self.slots)}")
        try:
            sections = tuple(slot.read(value) for slot, value in zip(self.slots, values, strict=True))
        except TypeError as wrong:
            return self._short(str(wrong))
        except ValidationError as unsound:
            return self._short(f"{unsound.title}: {complaint_of(unsound)}")
        except ValueError as unwritable:
            return self._short(f"what JSON cannot say: {unwritable}")
        return Composed(sections=sections, rested=record.rested(), version=self.version)

    def _short(self, why: str) -> Refused:
        log.error("a compose returned what its annotation does not promise", module=self.module, why=why)
        return Refused(code="wrong-sections", why=f"{self.module}: {why}")
