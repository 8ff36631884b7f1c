"""The manifest that is shipped is the one that the class prints."""

from importlib.metadata import version
from importlib.resources import files

from mesh_runtime.contracts import Manifest
from mesh_runtime.runtime import manifest_of
from mesh_runtime_database import PostgreSQL


def test_the_shipped_manifest_is_printed_from_the_class() -> None:
    shipped = files("mesh_runtime_database").joinpath("manifest.json").read_text()
    assert Manifest.model_validate_json(shipped) == manifest_of(PostgreSQL, version("mesh-runtime-database"))
