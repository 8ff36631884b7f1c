"""A small process that removes a private server's directory once the test run is gone, however that ends."""

import subprocess
from pathlib import Path

_SWEEP = 'cat >/dev/null; for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$1"; [ -e "$1" ] || exit 0; sleep 0.5; done'


def sweeper(directory: Path) -> subprocess.Popen[bytes]:
    """A process that removes the directory once this one is gone, however it ends, also while no server runs."""
    return subprocess.Popen(["sh", "-c", _SWEEP, "sweep", str(directory)], stdin=subprocess.PIPE, start_new_session=True)
