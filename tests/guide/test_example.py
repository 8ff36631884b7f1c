"""The guide's example is an outside author's module: installed as one, run as one, composed as one."""

import ast
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from mesh_runtime import Absent, Files, Found, Machine, OverlayPeers, Peer, Refused, StoreAt, StoreReachableFrom
from mesh_runtime.contracts.granting import GrantTerms, TermsOf
from mesh_runtime.runtime import ModuleRuntime, manifest_of
from mesh_runtime.testing.mesh import StandInMesh, section_of
from mesh_runtime.testing.postgres import PrivatePostgres
from mesh_runtime.testing.responder import MakeResponder
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.stating import Failing
from mesh_runtime.testing.waiting import until
from mesh_runtime_database import PostgreSQL
from mesh_runtime_database.settings import DatabaseSettings

EXAMPLE = Path(__file__).parents[2] / "docs" / "guide" / "example"
SOURCE = EXAMPLE / "mesh_motd" / "__init__.py"
ALPHA = Machine(name="alpha", address="10.77.0.1", parameters={"greeting": "Welcome."})
PEERS: Found[tuple[Peer, ...]] = Found(
    value=(Peer(machine="gamma", address="10.77.0.3"), Peer(machine="beta", address="10.77.0.2")), revision=3
)
STORE: Found[StoreAt] = Found(value=StoreAt(address="store.mesh:5000", ca="a CA"), revision=3)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example was installed by pip, as its author would install it, but offline."""
    target = tmp_path_factory.mktemp("installed")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target"]
    made = subprocess.run([*install, str(target), str(EXAMPLE)], capture_output=True, text=True, check=False, timeout=120)
    assert made.returncode == 0, made.stderr
    return target


@pytest.fixture(scope="module")
def motd(installed: Path) -> Iterator[type[ModuleRuntime]]:
    """The class as it was installed."""
    spec = spec_from_file_location("mesh_motd", installed / "mesh_motd" / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["mesh_motd"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    loaded: type[ModuleRuntime] = module.Motd
    yield loaded
    del sys.modules["mesh_motd"]


def run(installed: Path, *arguments: str) -> str:
    """What the installed program prints."""
    environment = {"PYTHONPATH": str(installed), "PATH": os.environ["PATH"]}
    command = [sys.executable, str(installed / "bin" / "mesh-runtime-motd"), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.timeout(150)
def test_its_program_says_its_version_and_prints_its_manifest(installed: Path, motd: type[ModuleRuntime]) -> None:
    assert run(installed, "--version") == "mesh-runtime-motd 1.0.0\n"
    manifest: dict[str, Any] = json.loads(run(installed, "manifest"))
    assert manifest["command"] == ["mesh-runtime-motd", "run"]
    assert (manifest["sections"], manifest["needs"]) == (["files"], ["database.1/motd"])
    assert manifest == json.loads(manifest_of(motd, "1.0.0").model_dump_json())


@pytest.mark.timeout(150)
async def test_it_composes_the_file_from_its_placement_and_from_what_the_mesh_answers(mesh: StandInMesh, motd: type[ModuleRuntime]) -> None:
    composed = await mesh.compose(motd, ALPHA, answers={OverlayPeers: PEERS, StoreReachableFrom: STORE})
    (file,) = section_of(composed, Files).files
    assert file.path == "/etc/motd"
    assert file.content == "Welcome.\nBeside alpha: beta, gamma.\nImages come from store.mesh:5000.\n"


@pytest.mark.timeout(150)
async def test_it_says_that_there_is_no_store_only_where_that_is_a_fact(mesh: StandInMesh, motd: type[ModuleRuntime]) -> None:
    absent = await mesh.compose(motd, ALPHA, answers={OverlayPeers: PEERS, StoreReachableFrom: Absent(revision=3)})
    assert "has no store" in section_of(absent, Files).files[0].content
    unanswered = await mesh.compose(motd, ALPHA, answers={OverlayPeers: PEERS, StoreReachableFrom: Failing.NOBODY})
    assert isinstance(unanswered, Refused)
    assert "store-reachable-from" in unanswered.why


@pytest.mark.timeout(150)
async def test_a_placement_without_its_parameter_is_refused_by_name(mesh: StandInMesh, motd: type[ModuleRuntime]) -> None:
    refused = await mesh.compose(motd, ALPHA.model_copy(update={"parameters": {}}))
    assert isinstance(refused, Refused)
    assert (refused.code, refused.again) == ("no-greeting", False)


@pytest.mark.timeout(150)
async def test_it_keeps_in_its_own_database_who_was_greeted_each_once(
    motd: type[ModuleRuntime], runtimes: Runtimes, responder: MakeResponder, postgres: PrivatePostgres, tmp_path: Path
) -> None:
    greeted = sys.modules["mesh_motd"].Greeted
    door = type("Door", (ModuleRuntime,), {"tells": (greeted,)})
    terms = Found[GrantTerms](value=GrantTerms(), revision=1)
    own = DatabaseSettings(server=postgres.write_server(tmp_path / "server"))
    rows = "SELECT id FROM greeted ORDER BY id"
    async with (
        responder("controller@alpha", {TermsOf: terms}),
        runtimes.run(PostgreSQL, own=own),
        runtimes.run(motd) as keeping,
        runtimes.run(door) as telling,
    ):
        await keeping.ready(within=30)
        await telling.ready()
        for name in ("ann", "bob", "ann", "eve'; --"):
            await telling.module.tell(greeted(id=name))
        await until(lambda: len(postgres.query(rows, dbname="motd")) == 3, "all are kept", within=20)
        assert postgres.query(rows, dbname="motd") == [("ann",), ("bob",), ("eve'; --",)]
        (owner,) = postgres.query(
            "SELECT tableowner, rolcanlogin FROM pg_tables JOIN pg_roles ON rolname = tableowner WHERE tablename = 'greeted'", dbname="motd"
        )
        assert owner == ("motd", False)
        await asyncio.to_thread(postgres.kill)
        await telling.module.tell(greeted(id="told while the server was dead"))
        await asyncio.to_thread(postgres.start)
        await until(lambda: len(postgres.query(rows, dbname="motd")) == 4, "what was told meanwhile is kept", within=60)
        assert keeping.state.ready
        assert not [name for name in keeping.state.counts if "parked" in name]


def test_it_is_short_and_imports_of_the_mesh_the_library_alone() -> None:
    text = SOURCE.read_text()
    assert len(text.splitlines()) <= 50
    imported = {node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name and name.startswith("mesh_")} == {"mesh_runtime", "mesh_runtime.contracts"}
