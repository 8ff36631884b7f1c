"""The library of the mesh: all that the author of a module imports.

A runtime built on it waits, in its own process, for whatever may come later (broker, certificate, login), and what it
composes is complete or refused. The layers of this package, and which may import which, stand in `pyproject.toml`
under import-linter; the words stand in `docs/glossary.md`.

Names are loaded when they are first used, so that the command `health` pays for none of them.
"""

from importlib import import_module

TYPE_CHECKING = False  # as type checkers know it: importing `typing` would cost as much as all that is imported before `health` runs
if TYPE_CHECKING:
    from typing import Any

    from mesh_runtime.broker import TooLarge
    from mesh_runtime.contracts import (
        Absent,
        Contract,
        ContractError,
        File,
        Files,
        Found,
        Identity,
        LevelError,
        Lookup,
        Machine,
        NoStore,
        Overlay,
        OverlayPeers,
        Peer,
        Reason,
        Refused,
        RegistryTrust,
        Section,
        StoreAt,
        StoreReachableFrom,
        Tell,
        Tool,
        TrustStore,
        Unanswered,
    )
    from mesh_runtime.contracts.database import Database, DatabaseAccess
    from mesh_runtime.contracts.granting import Access, Resource
    from mesh_runtime.grants.granted import NotGranted, granted
    from mesh_runtime.grants.providing import Claim, Provides
    from mesh_runtime.runtime import ModuleRuntime, answers, told
    from mesh_runtime.settings import ModuleSettings
    from mesh_runtime.telling import NotSent, SendUnknown

_HOMES = {
    "mesh_runtime.broker": ("TooLarge",),
    "mesh_runtime.contracts": (
        "Absent",
        "Contract",
        "ContractError",
        "File",
        "Files",
        "Found",
        "Identity",
        "LevelError",
        "Lookup",
        "Machine",
        "NoStore",
        "Overlay",
        "OverlayPeers",
        "Peer",
        "Reason",
        "Refused",
        "RegistryTrust",
        "Section",
        "StoreAt",
        "StoreReachableFrom",
        "Tell",
        "Tool",
        "TrustStore",
        "Unanswered",
    ),
    "mesh_runtime.contracts.database": ("Database", "DatabaseAccess"),
    "mesh_runtime.contracts.granting": ("Access", "Resource"),
    "mesh_runtime.grants.granted": ("NotGranted", "granted"),
    "mesh_runtime.grants.providing": ("Claim", "Provides"),
    "mesh_runtime.runtime": ("ModuleRuntime", "answers", "told"),
    "mesh_runtime.settings": ("ModuleSettings",),
    "mesh_runtime.telling": ("NotSent", "SendUnknown"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Absent",
    "Access",
    "Claim",
    "Contract",
    "ContractError",
    "Database",
    "DatabaseAccess",
    "File",
    "Files",
    "Found",
    "Identity",
    "LevelError",
    "Lookup",
    "Machine",
    "ModuleRuntime",
    "ModuleSettings",
    "NoStore",
    "NotGranted",
    "NotSent",
    "Overlay",
    "OverlayPeers",
    "Peer",
    "Provides",
    "Reason",
    "Refused",
    "RegistryTrust",
    "Resource",
    "Section",
    "SendUnknown",
    "StoreAt",
    "StoreReachableFrom",
    "Tell",
    "TooLarge",
    "Tool",
    "TrustStore",
    "Unanswered",
    "answers",
    "granted",
    "told",
]


def __getattr__(name: str) -> "Any":
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
