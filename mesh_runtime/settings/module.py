"""The base of a module's own settings, `MESH_<MODULE>_<NAME>`."""

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict


class OnlyWhatIsGiven(BaseSettings):
    """Settings that take what `load_settings` hands them and look nowhere else: not at the process's environment, no file."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leave no source but the constructor's arguments (pydantic-settings' own hook)."""
        return (init_settings,)


class ModuleSettings(OnlyWhatIsGiven):
    """Subclass it to give a module settings of its own: the field `port` of the module `web` is `MESH_WEB_PORT`.

    Give each field a description and, if a wrong value is likely, `examples`: both are shown to operators. A secret is a
    `SecretStr`; its value is then masked in all logs and never stands in an error. Lists and models are written as JSON.
    """
