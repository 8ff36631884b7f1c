"""Run by tests as a process of its own: takes or applies a declaration and is cut at one point of one write, by a signal or an error.

Its first argument is JSON: `root`, `state_dir`, `key_file`; `under`, the directory whose writes are cut; `point` (`write`, `half`, `fsync`,
`rename`), `fault` (`kill`, `ENOSPC`, `EIO`), `nth` such point from 1; `take`, a declaration to take, or nothing: apply what was taken.
"""

import errno
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn, cast

from mesh_runtime.contracts import Identity, SignedDeclaration
from mesh_runtime_host import Host
from mesh_runtime_host.settings import HostSettings

REAL = {name: getattr(os, name) for name in ("write", "fsync", "rename")}


def fail(fault: str) -> NoReturn:
    """Be killed, or raise."""
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise OSError(getattr(errno, fault), os.strerror(getattr(errno, fault)))


def install(under: str, point: str, fault: str, nth: int) -> None:
    """From now on the `nth` passage of the point under that directory fails."""
    passed = [0]

    def due(file: int, regular: bool = True) -> bool:
        place = Path(f"/proc/self/fd/{file}").readlink()
        if not str(place).startswith(under) or place.is_dir() is regular:
            return False
        passed[0] += 1
        return passed[0] == nth

    def write(file: int, data: Any) -> int:
        if point in ("write", "half") and due(file):
            if point == "half":
                REAL["write"](file, bytes(data)[: len(data) // 2])
            fail(fault)
        return cast("int", REAL["write"](file, data))

    def fsync(file: int) -> None:
        if point == "fsync" and due(file):
            fail(fault)
        REAL["fsync"](file)

    def rename(old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if point == "rename" and due(src_dir_fd, regular=False):
            fail(fault)
        REAL["rename"](old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    vars(os).update(write=write, fsync=fsync, rename=rename)


def main() -> None:
    """Do it; print what stands if nothing killed it."""
    os.umask(0)
    told = json.loads(sys.argv[1])
    settings = HostSettings(controller_key=Path(told["key_file"]), root=Path(told["root"]))
    host = Host(Identity("host", "node-1"), settings, Path(told["state_dir"]), cast("Any", None), cast("Any", None))
    install(told["under"], told["point"], told["fault"], told["nth"])
    if told["take"]:
        host.take(SignedDeclaration.model_validate(told["take"]))
    else:
        print(json.dumps([one.model_dump() for one in host.applier.bring().elements]))  # noqa: T201


main()
