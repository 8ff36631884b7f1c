"""How a mesh begins: who it is, and its first machines. Until the command ``mesh init`` exists, a JSON file holds this.

The controller takes it up when its inventory is empty, and never again. ``host`` is on every machine of the mesh and ``controller`` on its
own, without a placement being recorded.
"""

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mesh_runtime.contracts.identity import check_name


def _is_name(name: str) -> str:
    return check_name("a machine's name", name)


def _is_address(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        raise ValueError("an overlay address must be an IPv4 or IPv6 address, without a prefix length") from None


#: A machine's name: 1 to 63 of a-z, 0-9 and '-'.
MachineName = Annotated[str, AfterValidator(_is_name)]
#: A machine's address in the overlay, in its canonical text.
OverlayAddress = Annotated[str, AfterValidator(_is_address)]


class FoundedMachine(BaseModel):
    """A machine: its name, and its address in the overlay."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    name: MachineName
    address: OverlayAddress


class Founding(BaseModel):
    """The mesh's id, the epoch of its controller's seat (from 1), and its machines: at least one, no two of one name or address."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    mesh: str = Field(min_length=1, max_length=200)
    epoch: int = Field(default=1, ge=1)
    machines: tuple[FoundedMachine, ...] = Field(min_length=1)

    def model_post_init(self, context: object) -> None:
        """Refuse two machines of one name or address."""
        for what, values in (("name", [one.name for one in self.machines]), ("address", [one.address for one in self.machines])):
            twice = sorted({one for one in values if values.count(one) > 1})
            if twice:
                raise ValueError(f"two machines have the {what} {', '.join(twice)}")
