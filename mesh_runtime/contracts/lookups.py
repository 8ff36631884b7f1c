"""Lookups that the controller answers, with what they find."""

from mesh_runtime.contracts.base import Lookup
from mesh_runtime.contracts.outcomes import Absent, Found
from mesh_runtime.contracts.sections import Part, Peer, Registry


class StoreAt(Part):
    """Where the artifact store is reached, and the CA (PEM) of its certificate."""

    address: Registry
    ca: str


class OverlayPeers(Lookup[Found[tuple[Peer, ...]]], answered_by="controller"):
    """All other machines of the overlay, as ``of`` sees them. A list: it is whole or it is not answered."""

    of: str


class StoreReachableFrom(Lookup[Found[StoreAt] | Absent], answered_by="controller"):
    """The artifact store that ``machine`` reaches; absent if the mesh has none."""

    machine: str
