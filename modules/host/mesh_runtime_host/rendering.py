"""Which file each element of a declaration is: its path under the root, its bytes, its mode.

Every element of this form of the host is one whole file, so that each can be put in force, seen again and taken away by itself.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import TypeAdapter

from mesh_runtime.contracts import SECTIONS, DeclaredSection, Files, Overlay, RegistryTrust, element_digest, element_name
from mesh_runtime.contracts.sections import AnySection, NoStore, TrustStore
from mesh_runtime_host.registries import certs_directory

OVERLAY_PATH = "/etc/mesh/overlay.json"
PUBLIC = 0o644

#: Sections in the order in which they are applied.
ORDER = ("overlay", "registry-trust", "files")

_READERS: dict[str, TypeAdapter[AnySection]] = {
    "overlay": TypeAdapter(Overlay),
    "registry-trust": TypeAdapter(RegistryTrust),
    "files": TypeAdapter(Files),
}
KNOWS = tuple(sorted(set(_READERS) & set(SECTIONS)))


@dataclass(frozen=True, slots=True)
class Element:
    """One file as it is declared. `digest` is the contract's `element_digest`, `path` is absolute, to be taken under the root."""

    name: str
    path: str
    content: bytes
    mode: int
    digest: str

    @property
    def section(self) -> str:
        """The name of its section."""
        return self.name.partition("/")[0]

    @property
    def sha256(self) -> str:
        """Of the content alone, in hex."""
        return hashlib.sha256(self.content).hexdigest()


def read_section(declared: DeclaredSection) -> AnySection:
    """The section's model. Raises KeyError if this host does not know it, ValidationError for an unknown or unsound field."""
    return _READERS[declared.section].validate_json(json.dumps(declared.body))


def elements_of(module: str, section: AnySection) -> Iterator[Element]:
    """Every element of a section, a repeated one as often as it stands there. Raises ValueError for what has no place on a machine."""
    digests = {key: element_digest(value) for key, value in section.elements().items()}

    def element(key: str, path: str, content: str, mode: int = PUBLIC) -> Element:
        return Element(element_name(section.section, module, key), path, content.encode(), mode, digests[key])

    match section:
        case Overlay():
            yield element("", OVERLAY_PATH, section.model_dump_json(indent=2) + "\n")
        case TrustStore():
            yield element(section.address, f"{certs_directory(section.address)}/ca.crt", section.ca)
        case NoStore():
            return
        case Files():
            for file in section.files:
                yield element(file.path, file.path, file.content, file.mode)
