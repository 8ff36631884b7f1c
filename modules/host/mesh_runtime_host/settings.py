"""What an operator says to the host: `MESH_HOST_CONTROLLER_KEY`, `MESH_HOST_ROOT`, `MESH_HOST_GUARD`."""

from pathlib import Path

from pydantic import Field

from mesh_runtime.settings import ModuleSettings


class HostSettings(ModuleSettings):
    """The host's own settings."""

    controller_key: Path = Field(
        description="A file with the controller's public Ed25519 key, 64 hex digits. Only what this key signed is applied. "
        "Read afresh for each declaration; the file may come later.",
        examples=["/etc/mesh/controller.pub"],
    )
    root: Path = Field(
        description="The directory under which everything is applied; nothing outside it is ever touched. It is not made.",
        examples=["/"],
    )
    guard: float = Field(
        default=5.0,
        gt=0,
        le=3600,
        allow_inf_nan=False,
        description="Seconds between two comparisons of the machine with its last accepted declaration.",
        examples=["5"],
    )
