"""The catalog: manifests of installed distributions, read without importing them; a bad one takes out only itself."""

import sys
from pathlib import Path

import pytest

from mesh_runtime.contracts import Manifest
from mesh_runtime_controller.catalog import read_catalog


def install(directory: Path, name: str, manifest: str | None, package: bool = True) -> None:
    """A distribution, as an installer would leave it."""
    info = directory / f"mesh_{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mesh-{name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[mesh_runtime.modules]\n{name} = catalogued_{name}:Module\n")
    if not package:
        (directory / f"catalogued_{name}.py").write_text("raise RuntimeError('imported')\n")
        return
    (directory / f"catalogued_{name}").mkdir()
    (directory / f"catalogued_{name}" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    if manifest is not None:
        (directory / f"catalogued_{name}" / "manifest.json").write_text(manifest)


def manifest_text(name: str) -> str:
    return Manifest(module=name, version="1", command=("x",), sections=("files",)).model_dump_json()


def test_installed_modules_and_the_store_are_known() -> None:
    catalog = read_catalog()
    assert catalog.manifests["networking"].sections == ("overlay", "registry-trust")
    assert catalog.manifests["store"].seat == "store"
    assert not catalog.unusable


def test_a_module_is_known_by_its_manifest_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "good", manifest_text("good"))
    install(tmp_path, "bare", None)
    install(tmp_path, "broken", "{")
    install(tmp_path, "other", manifest_text("another"))
    install(tmp_path, "single", None, package=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    catalog = read_catalog()
    assert catalog.manifests["good"].sections == ("files",)
    assert sorted(catalog.unusable) == ["bare", "broken", "other", "single"]
    assert "manifest.json" in catalog.missing("bare")
    assert "'another'" in catalog.missing("other")
    assert "good" in catalog.missing("unheard-of")
    assert not [name for name in sys.modules if name.startswith("catalogued_")]
