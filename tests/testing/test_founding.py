"""A founded mesh holds all that runtimes, broker and operator need before the first of them starts, and keeps its secrets to its owner."""

import json
import stat
from pathlib import Path

import pytest

from mesh_runtime.contracts import Identity, Manifest
from mesh_runtime.contracts.founding import Founding
from mesh_runtime.settings import load_settings, read_credentials
from mesh_runtime.testing.founding import MODULES, BrokerPlace, FoundedMesh, FoundMesh, found_mesh
from mesh_runtime.testing.processes import RuntimeProcess, script
from mesh_runtime.trust import Authority, SigningKey, VerifyKey
from mesh_runtime.trust.sealing import PrivateKey, PublicKey
from mesh_runtime_controller import Controller
from mesh_runtime_host import Host

PLACE = BrokerPlace(address="127.0.0.1:5671")
BED = Identity("bed", "lab")
ORDERS = Manifest(module="orders", version="0", command=("orders", "run"), needs=("database.1/orders",))


@pytest.fixture
def founded(tmp_path: Path) -> FoundedMesh:
    extra = {BED: Manifest(module="bed", version="0", command=("bed",)), Identity("orders", "beta"): ORDERS}
    return found_mesh(tmp_path / "mesh", PLACE, machine="beta", address="10.1.0.2", extra=extra)


def test_every_login_has_its_credentials_and_its_rights(founded: FoundedMesh) -> None:
    names = {f"{module}@beta" for module in (*MODULES, "operator", "orders")} | {"bed@lab"}
    assert {str(who) for who in founded.manifests} == names
    made = founded.definitions()
    assert {user["name"] for user in made["users"]} == {row["user"] for row in made["permissions"]} == names
    for who, word in founded.passwords.items():
        read = read_credentials(founded.directory / "credentials" / str(who))
        assert (read.username, read.password.get_secret_value()) == (str(who), word)
        assert word not in json.dumps(made)
    assert len(set(founded.passwords.values())) == len(names)


def test_the_environment_of_each_runtime_is_one_that_it_takes(founded: FoundedMesh) -> None:
    controller = load_settings("controller", Controller.settings_class(), founded.environment("controller"))
    host = load_settings("host", Host.settings_class(), founded.environment("host"))
    assert not controller.warnings + host.warnings
    assert controller.runtime.state_dir == founded.state_root / "controller@beta"
    assert controller.runtime.ca_pin == founded.pin == Authority.load(founded.directory).pin
    signing = SigningKey.load(Path(founded.environment("controller")["MESH_CONTROLLER_SIGNING_KEY"]))
    assert VerifyKey.parse(Path(founded.environment("host")["MESH_HOST_CONTROLLER_KEY"]).read_text()) == signing.verify_key
    assert load_settings("networking", None, founded.environment("networking", MESH_LOG="console")).runtime.log == "console"


def test_the_founding_names_the_mesh_its_machine_and_the_first_epoch(founded: FoundedMesh) -> None:
    read = Founding.model_validate_json(Path(founded.environment("controller")["MESH_CONTROLLER_FOUNDING"]).read_bytes())
    assert (read.mesh, read.epoch) == (founded.mesh, 1)
    assert [(one.name, one.address) for one in read.machines] == [("beta", "10.1.0.2")]


def test_secrets_are_for_their_owner_alone(founded: FoundedMesh) -> None:
    secret = [one for one in founded.directory.rglob("*") if one.is_file() and one.suffix not in {".pem", ".pub"}]
    assert {one.name for one in secret} >= {"password", "controller.key", "ca.key", "broker.key", "pin", "orders@beta.key"}
    assert {stat.S_IMODE(one.stat().st_mode) for one in secret} == {0o600}
    shown = repr(founded)
    assert not [word for word in founded.passwords.values() if word in shown]


def test_who_needs_a_grant_has_a_key_pair_and_nobody_else(founded: FoundedMesh) -> None:
    key = PrivateKey.load(Path(founded.environment("orders")["MESH_KEY_FILE"]))
    assert founded.key_file("orders") == Path(founded.environment("orders")["MESH_KEY_FILE"])
    assert PublicKey.parse(founded.public_key("orders").read_text()) == key.public_key
    assert [one.name for one in sorted((founded.directory / "keys").iterdir())] == ["orders@beta.key", "orders@beta.pub"]
    assert "MESH_KEY_FILE" not in founded.environment("controller")
    for of in (founded.key_file, founded.public_key):
        with pytest.raises(LookupError, match="networking@beta has no key: no manifest of this mesh says that it needs something"):
            of("networking")


def test_a_mesh_is_never_founded_over_another(founded: FoundedMesh) -> None:
    with pytest.raises(FileExistsError):
        found_mesh(founded.directory, PLACE)


def test_a_module_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="0 installed distributions have an entry point 'nonsense'"):
        found_mesh(tmp_path, PLACE, modules=["nonsense"])


async def test_a_founded_runtime_becomes_ready_on_the_shared_broker(founding: FoundMesh) -> None:
    mesh = await founding(machine="gamma")
    async with RuntimeProcess(mesh.environment("networking"), script("networking")) as networking:
        await networking.states.until_ready(within=15)
