"""The sections that this repository's modules compose and its host applies.

A section names its own elements (``elements``): the smallest things that are put in force, reported and taken away one by one. Elements
are keyed by module, so that two modules may compose sections of one name.
"""

import hashlib
import json
import posixpath
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mesh_runtime.contracts.base import Section


def _is_plain_path(path: str) -> str:
    if not path.startswith("/") or posixpath.normpath(path) != path or path == "/" or "\0" in path or len(path) > 4096:
        raise ValueError("a file's path must be absolute and plain: no '..', '.', '//' or trailing '/', and no NUL")
    return path


_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_REGISTRY = re.compile(rf"({_LABEL}(\.{_LABEL})*|\[[0-9a-f:]+\])(:[0-9]{{1,5}})?\Z")


def _is_registry(address: str) -> str:
    port = address.rpartition("]")[2].rpartition(":")[2]
    if not _REGISTRY.match(address) or (port.isdigit() and ":" in address.rpartition("]")[2] and not 0 < int(port) < 65536):
        raise ValueError("a store's address must read host or host:port, in lower case, IPv6 in brackets, with no scheme and no path")
    return address


Path = Annotated[str, AfterValidator(_is_plain_path)]
Registry = Annotated[str, AfterValidator(_is_registry)]


class Part(BaseModel):
    """A part of a section; unknown fields are refused as in the section itself."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", hide_input_in_errors=True)


class Peer(Part):
    """Another machine of the overlay: its name and its address there."""

    machine: str
    address: str


class Overlay(Section):
    """This machine's own overlay address and its peers. First form: data; no tunnel is built from it yet."""

    address: str
    peers: tuple[Peer, ...]

    def elements(self) -> Mapping[str, object]:
        """One element: an overlay is whole or not there."""
        return {"": self.model_dump()}


class TrustStore(Section, section="registry-trust"):
    """The artifact store that this machine reaches, and the CA (PEM) under which it is trusted."""

    kind: Literal["trust-store"] = "trust-store"
    address: Registry
    ca: str

    def elements(self) -> Mapping[str, object]:
        """One element, named by the store's address."""
        return {self.address: self.model_dump()}


class NoStore(Section, section="registry-trust"):
    """It is a fact that this mesh has no store."""

    kind: Literal["no-store"] = "no-store"

    def elements(self) -> Mapping[str, object]:
        """None."""
        return {}


RegistryTrust = Annotated[TrustStore | NoStore, Field(discriminator="kind")]


class File(Part):
    """One whole file. ``mode`` is its permission bits (0 to 0o777)."""

    path: Path
    content: str
    mode: Annotated[int, Field(ge=0, le=0o777)] = 0o644


class Files(Section):
    """Files that a module puts on a machine. No two of one path."""

    files: tuple[File, ...]

    def elements(self) -> Mapping[str, object]:
        """One a file, named by its path."""
        return {file.path: file.model_dump() for file in self.files}


AnySection = Overlay | TrustStore | NoStore | Files

#: Section name to the classes that may stand under it.
SECTIONS: Mapping[str, tuple[type[AnySection], ...]] = {
    "overlay": (Overlay,),
    "registry-trust": (TrustStore, NoStore),
    "files": (Files,),
}


def element_name(section: str, module: str, key: str) -> str:
    """``files/motd/etc/motd``: an element's name in declarations, reports and plans."""
    return f"{section}/{module}" + (f"/{key.lstrip('/')}" if key else "")


def element_digest(value: object) -> str:
    """SHA-256 (hex) of an element as ``elements()`` gives it: its JSON with sorted keys and no blanks, in UTF-8.

    The host digests so what it *saw* after the act, the controller what it declared: only what is the same has the same digest.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
