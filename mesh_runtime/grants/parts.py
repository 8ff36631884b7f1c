"""What one issuer is made of: the parts that operators' acts and the sweep both work with."""

from collections.abc import Callable
from dataclasses import dataclass

from mesh_runtime.grants.making import Maker
from mesh_runtime.grants.noticing import Notices
from mesh_runtime.grants.orphans import Orphans
from mesh_runtime.grants.records import Records
from mesh_runtime.grants.retiring import Retirer


@dataclass(frozen=True, slots=True)
class Parts:
    """``issuer`` is its identity; ``clock`` gives the time as people read it."""

    issuer: str
    records: Records
    maker: Maker
    retirer: Retirer
    notices: Notices
    orphans: Orphans
    clock: Callable[[], str]
