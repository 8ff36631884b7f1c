"""Counts the starts of a process where only the process can: in its own state directory, a line for each.

A container engine's counter goes back to 0 when the container is started by hand; this one does not.
"""

import os
from datetime import UTC, datetime
from pathlib import Path

STARTS = "starts"
"""The file's name in the runtime's state directory."""


def append_start(directory: Path) -> None:
    """Append a line (time in UTC, process id) for this start, on disk when this returns.

    Makes the directory if it is missing (mode 0700). A line that a crash left without its end is ended first, so that lines stay
    countable. Raises OSError.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {os.getpid()}\n".encode()
    file = os.open(directory / STARTS, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            line = b"\n" + line
        os.write(file, line)
        os.fsync(file)
    finally:
        os.close(file)
    _sync_directory(directory)


def count_starts(directory: Path) -> int:
    """Return how often a process has started on this state directory; 0 if never."""
    try:
        return len((directory / STARTS).read_text("ascii", "replace").splitlines())
    except FileNotFoundError:
        return 0


def _sync_directory(directory: Path) -> None:
    # Without this a new file's name may be gone after a power loss though its content was synced.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
