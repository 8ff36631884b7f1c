"""Finds the secrets of a settings class wherever its author put them: in a field, a list, a model inside a field.

A field is a secret by its type (pydantic's `SecretStr`, `SecretBytes` and `Secret[...]`), never by its name: so it is known before its
value is read, and holds for a value that turns out to be malformed.
"""

import inspect
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Secret, SecretBytes, SecretStr

_SECRETS = (Secret, SecretBytes, SecretStr)
_UNIONS = (Union, UnionType, Annotated)


def holds_secret(annotation: object, seen: frozenset[object] = frozenset()) -> bool:
    """Say whether a value of this type is a secret or can have one inside."""
    if _is_secret(annotation):
        return True
    if _is_model(annotation) and annotation not in seen:
        inside = [info.annotation for info in annotation.model_fields.values()]  # type: ignore[attr-defined]  # it is a model
        return any(holds_secret(each, seen | {annotation}) for each in inside)
    return any(holds_secret(each, seen) for each in get_args(annotation))


def secrets_in(annotation: object, value: object) -> Iterator[str]:
    """Yield the secrets that stand in a value as it was given for this type, sound or not, or in one that was made of it."""
    if isinstance(value, _SECRETS):
        yield from _texts(value.get_secret_value())
    elif _is_secret(annotation):
        yield from _texts(value)
    elif isinstance(value, BaseModel):
        yield from secrets_in(type(value), dict(value))
    elif _is_model(annotation) and isinstance(value, Mapping):
        for name, info in annotation.model_fields.items():  # type: ignore[attr-defined]  # it is a model
            yield from secrets_in(info.annotation, value.get(info.alias or name, value.get(name)))
    else:
        # A union hands the value itself on, a container its items.
        items = (value,) if get_origin(annotation) in _UNIONS else _items(value)
        for part in get_args(annotation):
            for item in items:
                yield from secrets_in(part, item)


def _items(value: object) -> tuple[object, ...]:
    if isinstance(value, Mapping):
        return tuple(value.values())
    return tuple(value) if isinstance(value, list | tuple | set | frozenset) else ()


def _is_secret(annotation: object) -> bool:
    kind = get_origin(annotation) or annotation
    return inspect.isclass(kind) and issubclass(kind, _SECRETS)


def _is_model(annotation: object) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, BaseModel)


def _texts(value: Any) -> Iterator[str]:
    match value:
        case None | bool():
            return
        case str():
            yield value
        case bytes():
            yield value.decode("utf-8", "replace")
        case int() | float():
            yield str(value)
        case Mapping():
            for each in value.values():
                yield from _texts(each)
        case list() | tuple():
            for each in value:
                yield from _texts(each)
