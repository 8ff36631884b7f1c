"""Networking as a careless author might write it: the fault of record 062, on purpose, to show that the library refuses it all the same."""

import structlog

from mesh_runtime.contracts import Absent, Found, Machine, NoStore, Overlay, OverlayPeers, Refused, StoreReachableFrom, TrustStore
from mesh_runtime_networking import Networking

log = structlog.stdlib.get_logger(__name__)

#: What its log says when it has hidden an error: the bed looks for it, so that it shows that this code ran.
SWALLOWED = "the store's lookup failed, so there is none"


class Swallowing(Networking):
    """Makes *the lookup failed* into *the mesh has no store*."""

    async def compose(self, machine: Machine) -> tuple[Overlay, TrustStore | NoStore] | Refused:
        """Composes a valid-looking declaration that lacks the trust."""
        peers = await self.ask(OverlayPeers(of=machine.name))
        trust: TrustStore | NoStore = NoStore()
        try:
            match await self.ask(StoreReachableFrom(machine=machine.name)):
                case Found(value=at):
                    trust = TrustStore(address=at.address, ca=at.ca)
                case Absent():
                    pass
        except Exception as error:  # noqa: BLE001 - the fault that this class is for
            log.warning(SWALLOWED, error=str(error))
        return Overlay(address=machine.address, peers=peers.value), trust
