"""Outcomes on the wire: how they are written by the answerer and read by the asker, one reader per contract, made once."""

import functools
import operator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import Field, TypeAdapter

from mesh_runtime.contracts.base import Ask
from mesh_runtime.contracts.outcomes import Refused


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
