"""Outcomes on the wire: how they are written by the answerer and read by the asker, one reader per contract, made once."""

import functools
import operator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import Field, TypeAdapter, ValidationError

from mesh_runtime.asking.words import complaint_of
from mesh_runtime.contracts.base import Ask
from mesh_runtime.contracts.outcomes import Found, Refused


def members_of(outcome: Any) -> tuple[type, ...]:
    """The classes of a union annotation, or the one class."""
    origin = get_origin(outcome)
    if origin is Annotated:
        return members_of(get_args(outcome)[0])
    if origin in (Union, UnionType):
        return tuple(member for part in get_args(outcome) for member in members_of(part))
    return (outcome,)


@cache
def outcome_classes(ask: type[Ask[Any]]) -> tuple[type, ...]:
    """The classes that this ask's outcome may have."""
    return members_of(ask.outcome_type())


@cache
def reader_of(ask: type[Ask[Any]]) -> TypeAdapter[Any]:
    """Reads an outcome of this ask, or the ``Refused`` that the library itself answers for any ask."""
    classes = {*outcome_classes(ask), Refused}
    union: Any = functools.reduce(operator.or_, classes)
    annotation: Any = union if len(classes) == 1 else Annotated[union, Field(discriminator="outcome")]
    return TypeAdapter(annotation)


@cache
def _allowed(ask: type[Ask[Any]]) -> tuple[tuple[type, ...], TypeAdapter[Any] | None]:
    """The plain classes of this ask's outcome, and what checks the value of a ``Found``."""
    plain: list[type] = []
    value: TypeAdapter[Any] | None = None
    for one in outcome_classes(ask):
        if issubclass(one, Found):
            annotation: Any = one.model_fields["value"].annotation
            value = TypeAdapter(annotation)
            plain.append(Found)
        else:
            plain.append(one)
    return tuple(plain), value


def complaint_about(ask: type[Ask[Any]], outcome: object) -> str:
    """Why this is no outcome of the ask, or nothing. An author writes ``Found(value=...)``; what it holds is checked here."""
    plain, value = _allowed(ask)
    if not isinstance(outcome, plain):
        return f"{type(outcome).__name__}, its contract says {' or '.join(sorted(one.__name__ for one in plain))}"
    if value is not None and isinstance(outcome, Found):
        try:
            value.validate_python(outcome.value)
        except ValidationError as wrong:
            return f"Found whose value is not what its contract says: {complaint_of(wrong)}"
    return ""
