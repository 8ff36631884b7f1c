"""Lists settings with their descriptions, for the guide and for whoever prints them."""

from dataclasses import dataclass

from pydantic import BaseModel

from mesh_runtime.settings.given import variable_of
from mesh_runtime.settings.loading import PREFIX
from mesh_runtime.settings.runtime import RuntimeSettings


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting as a reader of the guide needs it. `default` is empty if there is none that can be written down."""

    variable: str
    required: bool
    default: str
    description: str
    example: str


def describe_settings(kind: type[BaseModel] = RuntimeSettings, prefix: str = PREFIX) -> tuple[SettingRow, ...]:
    """Return a row for each setting of the class, in the order of their declaration."""
    return tuple(
        SettingRow(
            variable=variable_of(prefix, name),
            required=field.is_required(),
            default="" if field.is_required() or field.default_factory or not field.default else str(field.default),
            description=field.description or "",
            example=str(field.examples[0]) if field.examples else "",
        )
        for name, field in kind.model_fields.items()
    )
