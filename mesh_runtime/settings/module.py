"""The base of a module's own settings, `MESH_<MODULE>_<NAME>`."""

from pydantic import BaseModel, ConfigDict


class OnlyWhatIsGiven(BaseModel):
    """Settings that take what `load_settings` hands them and look nowhere else: not at the process's environment, no file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)


class ModuleSettings(OnlyWhatIsGiven):
    """Subclass it to give a module settings of its own: the field `port` of the module `web` is `MESH_WEB_PORT`.

    Give each field a description and, if a wrong value is likely, `examples`: both are shown to operators. A secret is a
    `SecretStr`; its value is then masked in all logs and never stands in an error. Lists and models are written as JSON.
    """
