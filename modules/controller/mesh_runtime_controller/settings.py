"""The controller's own settings, ``MESH_CONTROLLER_<NAME>``. A file that is not there yet is waited for, not malformed."""

from pathlib import Path

from pydantic import Field, field_validator

from mesh_runtime import ModuleSettings


class ControllerSettings(ModuleSettings):
    """Where the controller's key, its mesh's founding and its inventory are."""

    signing_key: Path = Field(
        description="A file with the controller's Ed25519 private key in PEM: it signs every declaration.",
        examples=["/etc/mesh/controller.key"],
    )
    founding: Path | None = Field(
        default=None,
        description="A JSON file that says how the mesh begins; an empty inventory takes it up, any other is checked to be of that mesh.",
        examples=["/etc/mesh/founding.json"],
    )
    database: str = Field(
        default="",
        description="The inventory's SQLite file, as a path or an URL sqlite:///PATH; inventory.sqlite in the state directory by default.",
        examples=["/var/lib/mesh/inventory.sqlite"],
    )

    @field_validator("database")
    @classmethod
    def _is_sqlite(cls, value: str) -> str:
        scheme, separator, path = value.partition("://")
        if separator and (scheme != "sqlite" or not path.strip("/")):
            raise ValueError("the inventory is a SQLite file so far: give a path, or sqlite:///PATH")
        return value

    def database_file(self, state_dir: Path) -> Path:
        """The inventory's file."""
        path = self.database.removeprefix("sqlite:///") if self.database.startswith("sqlite:///") else self.database
        return Path(path) if path else state_dir / "inventory.sqlite"
