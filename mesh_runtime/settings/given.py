"""What an environment says about the fields of a settings class, before it is checked: texts, and JSON where a field is no single value.

By hand, since pydantic-settings costs a runtime a sixth of all that it imports (`docs/adr/0012-settings-by-pydantic-alone.md`).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, PlainValidator, WrapValidator
from pydantic.fields import FieldInfo

_SEVERAL = (list, tuple, set, frozenset, dict, Mapping)
#: A field that has one of these reads the text itself.
_READS_ITSELF = (BeforeValidator, PlainValidator, WrapValidator)


class NotJson(ValueError):
    """A field's text is not the JSON that it must be. Carries the field's name alone: the text may be a secret."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


def variable_of(prefix: str, field: str) -> str:
    """Return the name of the environment variable of a field."""
    return f"{prefix}{field.upper()}"


def given(kind: type[BaseModel], prefix: str, environ: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield each field whose variable is set to something, with what stands there. Raises NotJson."""
    for name, info in kind.model_fields.items():
        text = environ.get(variable_of(prefix, name))
        if not text:
            continue
        if not _is_json(info):
            yield name, text
            continue
        try:
            yield name, json.loads(text)
        except (ValueError, RecursionError):  # the second: brackets nested without end
            raise NotJson(name) from None


def _is_json(info: FieldInfo) -> bool:
    return not any(isinstance(each, _READS_ITSELF) for each in info.metadata) and _has_parts(info.annotation)


def _has_parts(annotation: object) -> bool:
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return any(_has_parts(each) for each in get_args(annotation))
    kind = origin or annotation
    return isinstance(kind, type) and (issubclass(kind, (*_SEVERAL, BaseModel)) or is_dataclass(kind))
