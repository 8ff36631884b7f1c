"""Reads the states of this machine's runtimes, each from its own socket: no broker and no controller is needed for it."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mesh_runtime.contracts import BadName, Identity
from mesh_runtime.health.check import NotAlive, read_state

NOT_RUNNING = "not running"

State = Mapping[str, object]


def read_states(state_root: Path) -> dict[str, State]:
    """Identity to the state that its process shows; of one that does not answer, ``state`` is *not running* and ``why`` says more.

    Raises OSError if the state root itself cannot be read.
    """
    directories = {one.name: one for one in sorted(state_root.iterdir()) if _is_identity(one.name) and one.is_dir()}
    with ThreadPoolExecutor(max_workers=16) as readers:
        return dict(zip(directories, readers.map(_state_of, directories.values()), strict=True))


def _is_identity(name: str) -> bool:
    try:
        Identity.parse(name)
    except BadName:
        return False
    return True


def _state_of(directory: Path) -> State:
    try:
        return read_state(directory)
    except NotAlive as why:
        return {"identity": directory.name, "state": NOT_RUNNING, "why": str(why)}
