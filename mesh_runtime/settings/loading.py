"""Turns an environment into settings: all of them, or one line that says what is wrong."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from pydantic import BaseModel, ValidationError

from mesh_runtime.logging import register_secret
from mesh_runtime.settings.given import NotJson, given, variable_of
from mesh_runtime.settings.malformed import Complaint, MalformedSetting
from mesh_runtime.settings.module import ModuleSettings, OnlyWhatIsGiven
from mesh_runtime.settings.runtime import RuntimeSettings
from mesh_runtime.settings.secret import holds_secret, secrets_in

PREFIX = "MESH_"
_MODULE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_CA = "MESH_CA_FILE or MESH_CA_PIN"

Own = TypeVar("Own", bound=ModuleSettings | None, covariant=True)
Some = TypeVar("Some", bound=OnlyWhatIsGiven)
Module = TypeVar("Module", bound=ModuleSettings)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[Own]):
    """What an environment says to one runtime.

    `warnings` holds a line for each variable under the module's own prefix that it does not know; whoever configures the
    log writes them there, since how to log is itself a setting.
    """

    runtime: RuntimeSettings
    own: Own
    warnings: tuple[str, ...]


@overload
def load_settings(module: str, settings_class: None = None, environ: Mapping[str, str] | None = None) -> Loaded[None]: ...
@overload
def load_settings(module: str, settings_class: type[Module], environ: Mapping[str, str] | None = None) -> Loaded[Module]: ...


def load_settings(module: str, settings_class: type[ModuleSettings] | None = None, environ: Mapping[str, str] | None = None) -> Loaded[Any]:
    """Read the settings of a runtime of this module, and the module's own if it has a class of them.

    `environ` is the process's environment by default. A variable that is set to nothing counts as not set. Raises
    MalformedSetting with everything that is wrong, at once; TypeError if a field of `settings_class` would be one of the
    runtime's own variables. Secrets among the module's settings are masked in all logs from now on.
    """
    environ = os.environ if environ is None else environ
    if not _MODULE.match(module):
        raise ValueError(f"{module!r} is no module's name: 1 to 63 of a-z, 0-9 and '-', with no '-' at either end")
    prefix = f"{PREFIX}{module.upper().replace('-', '_')}_"
    if settings_class is not None:
        _refuse_overlap(prefix, settings_class)
    complaints: list[Complaint] = []
    runtime = _parse(RuntimeSettings, PREFIX, environ, complaints)
    own = None if settings_class is None else _parse(settings_class, prefix, environ, complaints)
    if complaints or runtime is None:
        raise MalformedSetting(complaints)
    return Loaded(runtime, own, tuple(_unknown(prefix, settings_class, environ)))


def _parse(kind: type[Some], prefix: str, environ: Mapping[str, str], complaints: list[Complaint]) -> Some | None:
    try:
        known = dict(given(kind, prefix, environ))
        # Before they are checked: a validator may quote them. And after: a default may be one.
        _mask(secret for name, value in known.items() for secret in secrets_in(kind.model_fields[name].annotation, value))
        made = kind(**known)
        _mask(secrets_in(kind, made))
        return made
    except NotJson as error:
        complaints.append(Complaint(variable_of(prefix, error.field), "it is not the JSON that it must be", _example(kind, error.field)))
    except ValidationError as error:
        complaints += _of_validation(error, kind, prefix)
    return None


def _mask(secrets: Iterable[str]) -> None:
    for secret in secrets:
        register_secret(secret)


def _of_validation(error: ValidationError, kind: type[BaseModel], prefix: str) -> Iterator[Complaint]:
    seen: set[str] = set()
    for each in error.errors(include_url=False, include_input=False):
        place = [str(part) for part in each["loc"]]
        field = place[0] if place else ""
        if field in seen:
            continue
        seen.add(field)
        where = f"at {'.'.join(place[1:])}: " if len(place) > 1 and not _is_secret(kind, field) else ""
        if field not in kind.model_fields:
            yield Complaint(_CA if kind is RuntimeSettings else f"{prefix}*", _reason(each["msg"]))
        elif each["type"] == "missing" and len(place) == 1:
            yield Complaint(variable_of(prefix, field), "it is not set", _example(kind, field))
        elif _is_secret(kind, field):
            # A validator's own words may hold the value.
            yield Complaint(variable_of(prefix, field), "its value (not shown, it is a secret) is not acceptable")
        else:
            yield Complaint(variable_of(prefix, field), where + _reason(each["msg"]), _example(kind, field))


def _reason(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input", "it", 1)


def _example(kind: type[BaseModel], field: str) -> str:
    info = kind.model_fields.get(field)
    return str(info.examples[0]) if info is not None and info.examples else ""


def _is_secret(kind: type[BaseModel], field: str) -> bool:
    info = kind.model_fields.get(field)
    return info is not None and holds_secret(info.annotation)


def _refuse_overlap(prefix: str, kind: type[ModuleSettings]) -> None:
    taken = {variable_of(PREFIX, name) for name in RuntimeSettings.model_fields}
    for name in kind.model_fields:
        if (variable := variable_of(prefix, name)) in taken:
            raise TypeError(f"{kind.__name__}.{name} would be {variable}, which every runtime has already: rename it")


def _unknown(prefix: str, kind: type[ModuleSettings] | None, environ: Mapping[str, str]) -> Iterator[str]:
    own = [] if kind is None else [variable_of(prefix, name) for name in kind.model_fields]
    runtime = {variable_of(PREFIX, name) for name in RuntimeSettings.model_fields}
    for variable in sorted(environ):
        if variable.startswith(prefix) and variable not in runtime and variable not in own:
            knows = f"it knows {', '.join(own)}" if own else "this module has no settings of its own"
            yield f"{variable} is set, and is no setting of this module; {knows}"
