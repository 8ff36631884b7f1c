"""Which RabbitMQ a private broker runs: the one that Debian installed on this machine, or one in a root directory.

A root directory (*rootfs*) holds another Debian release with its `rabbitmq-server`, so that the same tests run on both
versions. Its programs are entered by chroot inside a mount namespace of their own, which needs root; the broker's own
directory is seen there under `/srv`, and no mount outlives the process. `make_rootfs` builds one from the package
mirror that this machine's own apt sources name.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path("/usr/lib/rabbitmq/bin")
"""Where Debian's package keeps RabbitMQ's own scripts. The ones in /usr/sbin insist on the user `rabbitmq`."""

_ENTER = """
set -e
mount --rbind /proc "$1/proc"
mount --rbind /dev "$1/dev"
mount --bind "$2" "$1/srv"
root=$1; shift 2
exec chroot "$root" "$@"
"""


class NoBroker(Exception):
    """There is no RabbitMQ where one was looked for. The message names what to install, or which option is wrong."""


@dataclass(frozen=True)
class Installation:
    """A RabbitMQ that can be run: of this machine (`rootfs` is None), or of the Debian in `rootfs`."""

    rootfs: Path | None = None

    def check(self) -> None:
        """Raise NoBroker unless the server is there and this user may run it."""
        if self.rootfs is None:
            if not (PROGRAMS / "rabbitmq-server").exists():
                raise NoBroker(f"no RabbitMQ in {PROGRAMS}: install Debian's package rabbitmq-server")
            return
        if not (self.rootfs / PROGRAMS.relative_to("/") / "rabbitmq-server").exists():
            raise NoBroker(f"no RabbitMQ in {self.rootfs}: `python -m mesh_runtime.testing.installation DIR` makes one")
        if os.geteuid() != 0:
            raise NoBroker(f"only root can enter the rootfs {self.rootfs}")

    def seen(self, directory: Path) -> Path:
        """Return the path under which the broker's programs see its `directory`."""
        return directory if self.rootfs is None else Path("/srv")

    def command(self, directory: Path, *argv: str) -> list[str]:
        """Return the command that runs `argv`, as a process that `exec` replaces step by step, never a child of one."""
        if self.rootfs is None:
            return list(argv)
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "enter"]
        return [*enter, str(self.rootfs), str(directory), *argv]

    def version(self) -> str:
        """Return RabbitMQ's version as its package says it, for example `3.10.8`."""
        lib = (self.rootfs or Path("/")) / "usr/lib/rabbitmq/lib"
        found = sorted(path.name.removeprefix("rabbitmq_server-") for path in lib.glob("rabbitmq_server-*"))
        if not found:
            raise NoBroker(f"no rabbitmq_server-VERSION under {lib}")
        return found[-1]


def make_rootfs(directory: Path, release: str = "trixie") -> Path:
    """Make a root directory of the Debian `release` with RabbitMQ in `directory`, unless it is there; return it.

    Takes about half a minute and 250 MB. Needs root and `mmdebstrap`. It is made beside its place and renamed, so that
    what was interrupted is never taken for a whole one.
    """
    if directory.exists():
        Installation(directory).check()
        return directory
    if shutil.which("mmdebstrap") is None:
        raise NoBroker("a rootfs is made with mmdebstrap: install Debian's package mmdebstrap")
    directory.parent.mkdir(parents=True, exist_ok=True)
    unfinished = directory.with_name(f"{directory.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", "--include=rabbitmq-server", release, unfinished, _mirror()],
        check=True,
    )
    unfinished.rename(directory)
    return directory


def _mirror() -> str:
    """Return the mirror of Debian's main archive that this machine's own apt sources name."""
    etc = Path("/etc/apt")
    sources = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    for path in sources:
        if path.suffix in {".list", ".sources"} and path.is_file():
            found = re.search(r"^(?:URIs:|deb(?: \[[^\]]*\])?)\s+(\S+/debian/?)(?=\s|$)", path.read_text(), re.MULTILINE)
            if found:
                return found.group(1)
    raise NoBroker("no mirror of Debian's archive in this machine's apt sources")


if __name__ == "__main__":
    make_rootfs(Path(sys.argv[1]), *sys.argv[2:])
