"""Makes a mesh on paper, for tests and beds, until the command ``mesh init`` exists: everything that stands before the first process runs.

A founded mesh is a directory: the CA and the broker's certificate, the controller's key pair, a login for each identity and, until hosts
carry them, a key pair for each that needs a grant, the controller's founding (who the mesh is, its first machine, epoch 1), and the
operator's context. It says the environment of each runtime and the definitions of the broker. What is secret is written for its owner
alone (0600), and no file is ever written over.

The operator's context is the directory that ``MESH_CONTEXT`` names, one value a file, each with a line end:

``broker``, ``name`` (what its certificate must bear), ``pin``, ``vhost``, ``machine``, ``state-root``, and the directory ``credentials``
with ``username`` (``operator@MACHINE``) and ``password``.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from mesh_runtime.contracts.founding import FoundedMachine, Founding
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.manifest import Manifest
from mesh_runtime.contracts.rights import OPERATOR, definitions
from mesh_runtime.entrypoint import GROUP
from mesh_runtime.logging import register_secret
from mesh_runtime.runtime.manifest import manifest_of
from mesh_runtime.testing.broker import PrivateBroker
from mesh_runtime.testing.broker_files import password_hash
from mesh_runtime.testing.management import Management
from mesh_runtime.trust import Authority, Issued, SigningKey
from mesh_runtime.trust.files import PRIVATE, PUBLIC, write_whole
from mesh_runtime.trust.sealing import PrivateKey

MODULES = ("controller", "networking", "host")
"""The modules that every mesh of this repository is founded with."""


@dataclass(frozen=True)
class BrokerPlace:
    """Where the mesh's broker is (or will be), and under which name and CA it proves itself."""

    address: str
    """``host:port``, or several, separated by commas."""
    name: str = "broker.mesh"
    vhost: str = "mesh"
    pin: str = ""
    """The pin of a CA that stands already (a shared test broker's). Empty: the mesh gets a CA of its own, and a leaf for ``name``."""


@dataclass(frozen=True)
class FoundedMesh:
    """A mesh as it was founded. ``machine`` is its first machine."""

    directory: Path
    mesh: str
    machine: str
    broker: BrokerPlace
    pin: str
    manifests: Mapping[Identity, Manifest]
    authority: Authority | None = field(repr=False)
    leaf: Issued | None = field(repr=False)
    """The broker's certificate, where the CA is the mesh's own."""
    passwords: Mapping[Identity, str] = field(repr=False)

    @property
    def state_root(self) -> Path:
        """The directory in which each runtime has its own, named by its identity."""
        return self.directory / "state"

    @property
    def host_root(self) -> Path:
        """What stands for ``/`` of the machine."""
        return self.directory / "root"

    @property
    def context(self) -> Path:
        """What ``MESH_CONTEXT`` names."""
        return self.directory / "context"

    @property
    def controller_key(self) -> Path:
        """The public half of the controller's key, as text."""
        return self.directory / "controller.pub"

    def identity(self, module: str) -> Identity:
        """The identity of ``module`` on the mesh's machine."""
        return Identity(module, self.machine)

    def state_dir(self, module: str) -> Path:
        """The directory of that runtime's state."""
        return self.state_root / str(self.identity(module))

    def credentials(self, module: str) -> Path:
        """The directory with that runtime's ``username`` and ``password``."""
        return self.directory / "credentials" / str(self.identity(module))

    def key_file(self, module: str) -> Path:
        """The file with the private key to which that runtime's grants are sealed: what ``MESH_KEY_FILE`` names.

        Raises LookupError if its manifest needs nothing, so that it has none.
        """
        return self._key(self.identity(module), "key")

    def public_key(self, module: str) -> Path:
        """The file with its public half, for ``mesh place MODULE MACHINE --key FILE``. Raises LookupError as ``key_file`` does."""
        return self._key(self.identity(module), "pub")

    def _key(self, identity: Identity, suffix: str) -> Path:
        if not self._has_key(identity):
            raise LookupError(f"{identity} has no key: no manifest of this mesh says that it needs something")
        return self.directory / "keys" / f"{identity}.{suffix}"

    def _has_key(self, identity: Identity) -> bool:
        return identity in self.manifests and bool(self.manifests[identity].needs)

    def definitions(self) -> dict[str, Any]:
        """What the broker must hold before its port accepts, as the management API says it; passwords as hashes."""
        return definitions(self.broker.vhost, self.manifests, {who: password_hash(word) for who, word in self.passwords.items()})

    def environment(self, module: str, **more: str) -> dict[str, str]:
        """The variables ``MESH_*`` for the runtime of ``module``; ``more`` adds to them or overrides them."""
        common = {
            "MESH_BROKER": self.broker.address,
            "MESH_BROKER_NAME": self.broker.name,
            "MESH_VHOST": self.broker.vhost,
            "MESH_CA_PIN": self.pin,
            "MESH_CREDENTIALS": str(self.credentials(module)),
            "MESH_MACHINE": self.machine,
            "MESH_STATE_DIR": str(self.state_dir(module)),
            "MESH_LOG": "json",
        }
        if self._has_key(self.identity(module)):
            common["MESH_KEY_FILE"] = str(self.key_file(module))
        own = {
            "controller": {
                "MESH_CONTROLLER_SIGNING_KEY": str(self.directory / "controller.key"),
                "MESH_CONTROLLER_FOUNDING": str(self.directory / "founding.json"),
            },
            "host": {"MESH_HOST_CONTROLLER_KEY": str(self.controller_key), "MESH_HOST_ROOT": str(self.host_root)},
        }
        return {**common, **own.get(module, {}), **more}


def installed_manifests(modules: Iterable[str]) -> dict[str, Manifest]:
    """The manifests of installed modules, printed from their classes. Raises LookupError for one that is not installed once."""
    found = {}
    for module in modules:
        entries = [one for one in entry_points(group=GROUP) if one.name == module]
        if len(entries) != 1:
            raise LookupError(f"{len(entries)} installed distributions have an entry point {module!r} in the group {GROUP}; one must")
        dist = entries[0].dist
        found[module] = manifest_of(entries[0].load(), dist.version if dist is not None else "0")
    return found


def operator_manifest() -> Manifest:
    """The operator's: it is no runtime, so no class prints it."""
    return Manifest(module=OPERATOR, version="0", command=("mesh",))


def found_mesh(
    directory: Path,
    broker: BrokerPlace,
    *,
    machine: str = "alpha",
    address: str = "10.77.0.1",
    modules: Iterable[str] = MODULES,
    extra: Mapping[Identity, Manifest] | None = None,
) -> FoundedMesh:
    """Make a mesh in ``directory`` (which must not hold one yet) with one machine, whose overlay address is ``address``.

    ``modules`` are installed ones that get a login there, beside the operator; ``extra`` are further logins, also of modules that are not
    installed. Raises FileExistsError, LookupError.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    manifests = {Identity(name, machine): manifest for name, manifest in installed_manifests(modules).items()}
    manifests |= {Identity(OPERATOR, machine): operator_manifest(), **(extra or {})}
    mesh = f"mesh-{secrets.token_hex(6)}"
    authority, leaf = (None, None) if broker.pin else _authority(directory, mesh, broker.name)
    key = SigningKey.generate()
    key.save(directory / "controller.key")
    write_whole(directory / "controller.pub", f"{key.verify_key}\n".encode(), PUBLIC)
    founding = Founding(mesh=mesh, epoch=1, machines=(FoundedMachine(name=machine, address=address),))
    write_whole(directory / "founding.json", founding.model_dump_json(indent=2).encode() + b"\n", PRIVATE)
    passwords = {who: secrets.token_urlsafe(24) for who in manifests}
    for who, password in passwords.items():
        _write_login(directory / "credentials" / str(who), who, password)
    for who, manifest in manifests.items():
        if manifest.needs:
            _write_key(directory / "keys", who)
    founded = FoundedMesh(
        directory=directory,
        mesh=mesh,
        machine=machine,
        broker=broker,
        pin=broker.pin or (authority.pin if authority is not None else ""),
        manifests=manifests,
        authority=authority,
        leaf=leaf,
        passwords=passwords,
    )
    founded.host_root.mkdir()
    founded.state_root.mkdir(mode=0o700)
    _write_context(founded)
    return founded


def _authority(directory: Path, mesh: str, name: str) -> tuple[Authority, Issued]:
    authority = Authority.create(f"CA of {mesh}")
    authority.save(directory)
    leaf = authority.issue_server([name])
    leaf.save(directory / "broker.pem", directory / "broker.key")
    return authority, leaf


def _write_login(directory: Path, who: Identity, password: str) -> None:
    register_secret(password)
    directory.mkdir(mode=0o700, parents=True)
    write_whole(directory / "username", f"{who}\n".encode(), PRIVATE)
    write_whole(directory / "password", f"{password}\n".encode(), PRIVATE)


def _write_key(directory: Path, who: Identity) -> None:
    directory.mkdir(mode=0o700, exist_ok=True)
    key = PrivateKey.generate()
    key.save(directory / f"{who}.key")
    write_whole(directory / f"{who}.pub", f"{key.public_key}\n".encode(), PUBLIC)


def _write_context(founded: FoundedMesh) -> None:
    context, operator = founded.context, founded.identity(OPERATOR)
    _write_login(context / "credentials", operator, founded.passwords[operator])
    values = {
        "broker": founded.broker.address,
        "name": founded.broker.name,
        "pin": founded.pin,
        "vhost": founded.broker.vhost,
        "machine": founded.machine,
        "state-root": str(founded.state_root),
    }
    for name, value in values.items():
        write_whole(context / name, f"{value}\n".encode(), PRIVATE)


FoundMesh = Callable[..., Awaitable[FoundedMesh]]


def founding_on(broker: PrivateBroker, management: Management, vhost: str, directory: Path) -> FoundMesh:
    """What founds meshes in a virtual host of a broker that runs, each in a directory of its own in ``directory``."""

    async def found(**how: Any) -> FoundedMesh:
        place = BrokerPlace(broker.address, broker.name, vhost, broker.ca.pin)
        founded = found_mesh(directory / f"mesh-{how.get('machine', 'alpha')}", place, **how)
        made = founded.definitions()
        await management.put_definitions({name: rows for name, rows in made.items() if name != "vhosts"})
        return founded

    return found
