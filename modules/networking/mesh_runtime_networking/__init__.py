"""The mesh's networking: each machine's overlay, and the trust in the store that it reaches.

First form: the overlay's peers are data that the host writes down; no tunnel is built from them yet.
"""

from mesh_runtime import (
    Absent,
    Found,
    Machine,
    ModuleRuntime,
    NoStore,
    Overlay,
    OverlayPeers,
    Refused,
    StoreReachableFrom,
    TrustStore,
)


class Networking(ModuleRuntime):
    """Composes `Overlay` and `RegistryTrust`. Both questions must be answered; a mesh without a store is a fact, never a silence."""

    async def compose(self, machine: Machine) -> tuple[Overlay, TrustStore | NoStore] | Refused:
        """The overlay as this machine sees it, and the store that it reaches, or that there is none."""
        peers, store = await self.ask(OverlayPeers(of=machine.name), StoreReachableFrom(machine=machine.name))
        trust: TrustStore | NoStore
        match store:
            case Found(value=at):
                trust = TrustStore(address=at.address, ca=at.ca)
            case Absent():
                trust = NoStore()
        return Overlay(address=machine.address, peers=peers.value), trust


__all__ = ["Networking"]
