"""Which mesh the command speaks to: the directory that ``MESH_CONTEXT`` names, one value a file.

``broker`` (``host:port``, or several, separated by commas), ``name`` (what the broker's certificate must bear), ``pin`` (SHA-256 of the
CA's SubjectPublicKeyInfo, 64 hex digits), ``vhost``, ``machine``, ``state-root`` (the directory in which each runtime of this machine has
its own), and the directory ``credentials`` with ``username`` and ``password``. Values are checked as the same variables of a runtime are; a
mistake is told by the file's name.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mesh_runtime.broker import BrokerAt
from mesh_runtime.contracts import Identity
from mesh_runtime.settings import MalformedSetting, NotThereYet, load_settings, read_credentials, read_file
from mesh_runtime_operator.exits import Ended, Exit

VARIABLE = "MESH_CONTEXT"

#: File to the variable of a runtime that has the same meaning.
_FILES = {
    "broker": "MESH_BROKER",
    "name": "MESH_BROKER_NAME",
    "pin": "MESH_CA_PIN",
    "vhost": "MESH_VHOST",
    "machine": "MESH_MACHINE",
    "state-root": "MESH_STATE_DIR",
}

#: Seconds between heartbeats of the command's own session.
HEARTBEAT = 10


@dataclass(frozen=True, slots=True)
class Context:
    """A mesh as its operator knows it."""

    directory: Path
    identity: Identity
    broker: BrokerAt
    state_root: Path


def read_context(environ: Mapping[str, str] = os.environ) -> Context:
    """The context that the environment names. Raises Ended (no context), naming the file that is missing or wrong."""
    named = environ.get(VARIABLE, "")
    if not named:
        raise Ended(Exit.NO_CONTEXT, f"{VARIABLE} is not set: it must name the directory of a mesh's context")
    directory = Path(named)
    credentials = directory / "credentials"
    try:
        values = {variable: _value(directory / file) for file, variable in _FILES.items()}
        login = read_credentials(credentials).username
        settings = load_settings("operator", None, {**values, "MESH_CREDENTIALS": str(credentials)}).runtime
        identity = Identity.parse(login)
    except NotThereYet as missing:
        raise Ended(Exit.NO_CONTEXT, f"the context {directory} cannot be used: {missing}") from None
    except MalformedSetting as malformed:
        raise Ended(Exit.NO_CONTEXT, f"the context {directory} cannot be used: {_by_file(str(malformed), directory)}") from None
    except ValueError as bad:
        raise Ended(Exit.NO_CONTEXT, f"the context {directory} cannot be used: credentials/username: {bad}") from None
    broker = BrokerAt(
        addresses=tuple((one.host, one.port) for one in settings.broker),
        name=settings.name_to_verify,
        vhost=settings.vhost,
        heartbeat=HEARTBEAT,
        ca_file=None,
        ca_pin=settings.ca_pin,
        credentials=lambda: read_credentials(credentials),
    )
    return Context(directory, identity, broker, settings.state_dir)


def _value(path: Path) -> str:
    try:
        value = read_file(path).decode().strip()
    except UnicodeDecodeError:
        raise NotThereYet(path, "is not UTF-8") from None
    if not value:
        raise NotThereYet(path, "is empty")
    return value


def _by_file(words: str, directory: Path) -> str:
    for file, variable in _FILES.items():
        words = words.replace(variable, str(directory / file))
    return words
