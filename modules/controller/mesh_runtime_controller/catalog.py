"""The catalog: manifests of the modules that are installed beside the controller, read without importing any of them.

A distribution that has an entry point in the group ``mesh_runtime.modules`` ships ``manifest.json`` in its package. One that ships none, or
one that cannot be read, takes only itself out of the catalog, and whoever asks for it is told why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from pydantic import ValidationError

from mesh_runtime.contracts import Manifest
from mesh_runtime_controller.records import first_fault

GROUP = "mesh_runtime.modules"

#: Modules that can be placed although nothing runs them yet, with the reason.
WITHOUT_RUNTIME: Mapping[str, tuple[Manifest, str]] = {
    "store": (
        Manifest(module="store", version="0", command=("mesh-runtime-store", "run"), seat="store"),
        "lookups say where the store is; the module that runs one is not built yet",
    )
}


@dataclass(frozen=True, slots=True)
class Catalog:
    """Manifests by module, and for what is installed but cannot be used: why."""

    manifests: Mapping[str, Manifest]
    unusable: Mapping[str, str] = field(default_factory=dict)

    def missing(self, module: str) -> str:
        """Why a module is not in the catalog, in words that say what is."""
        if module in self.unusable:
            return f"the module {module!r} cannot be used: {self.unusable[module]}"
        return f"no module {module!r} is installed beside the controller; there are {', '.join(sorted(self.manifests))}"


def read_catalog() -> Catalog:
    """Read what is installed now. Blocks for some milliseconds."""
    manifests = {name: manifest for name, (manifest, _) in WITHOUT_RUNTIME.items()}
    unusable: dict[str, str] = {}
    for entry in entry_points(group=GROUP):
        try:
            manifest = _manifest_of(entry)
        except (OSError, ValueError) as fault:
            unusable[entry.name] = first_fault(fault) if isinstance(fault, ValidationError) else str(fault)
        else:
            manifests[manifest.module] = manifest
    return Catalog(manifests, unusable)


def _manifest_of(entry: EntryPoint) -> Manifest:
    package = entry.module.partition(".")[0]
    spec = find_spec(package)  # finds a top-level name without importing it
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"its entry point names {entry.module}, and there is no package {package} to hold its manifest.json")
    manifest = Manifest.model_validate_json(Path(spec.submodule_search_locations[0], "manifest.json").read_bytes())
    if manifest.module != entry.name:
        raise ValueError(f"its entry point is named {entry.name!r}, its manifest says {manifest.module!r}")
    return manifest
