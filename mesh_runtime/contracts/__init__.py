"""What travels: pydantic models, their names and versions, routing keys and who may use them. No behaviour.

A contract may stand in any distribution, so that outside modules can talk to each other; those of this repository's modules stand here.
"""

from mesh_runtime.contracts.base import Ask, Contract, ContractError, Lookup, Provision, Section, Tell, Tool
from mesh_runtime.contracts.composing import Compose, Composed, ComposedSection, Machine, Rested
from mesh_runtime.contracts.declaring import (
    DeclaredSection,
    ElementReport,
    Removal,
    Report,
    SignedDeclaration,
    Statement,
)
from mesh_runtime.contracts.founding import FoundedMachine, Founding
from mesh_runtime.contracts.identity import BadName, Identity, check_name
from mesh_runtime.contracts.lookups import OverlayPeers, StoreAt, StoreReachableFrom
from mesh_runtime.contracts.manifest import Manifest
from mesh_runtime.contracts.outcomes import Absent, Found, LevelError, Missing, Outcome, Reason, Refused, Unanswered
from mesh_runtime.contracts.sections import (
    SECTIONS,
    File,
    Files,
    NoStore,
    Overlay,
    Peer,
    RegistryTrust,
    TrustStore,
    element_digest,
    element_name,
)

__all__ = [
    "SECTIONS",
    "Absent",
    "Ask",
    "BadName",
    "Compose",
    "Composed",
    "ComposedSection",
    "Contract",
    "ContractError",
    "DeclaredSection",
    "ElementReport",
    "File",
    "Files",
    "Found",
    "FoundedMachine",
    "Founding",
    "Identity",
    "LevelError",
    "Lookup",
    "Machine",
    "Manifest",
    "Missing",
    "NoStore",
    "Outcome",
    "Overlay",
    "OverlayPeers",
    "Peer",
    "Provision",
    "Reason",
    "Refused",
    "RegistryTrust",
    "Removal",
    "Report",
    "Rested",
    "Section",
    "SignedDeclaration",
    "Statement",
    "StoreAt",
    "StoreReachableFrom",
    "Tell",
    "Tool",
    "TrustStore",
    "Unanswered",
    "check_name",
    "element_digest",
    "element_name",
]
