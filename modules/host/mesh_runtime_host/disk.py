"""One file, wholly old or wholly new at every moment, and never readable by more than it will be.

Written to a new file beside it, with its final mode and flushed before it takes the name; the directory is flushed after. The name of the
new file follows from the final one, so what a killed process left behind is found and removed by the next run.
"""

import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Seen:
    """What stands at a name: a regular file with its mode and the SHA-256 of its bytes, or something of another `kind`."""

    kind: str
    sha256: str = ""
    mode: int = 0


NOTHING = Seen("nothing")


def look(directory: int, name: str) -> Seen:
    """What stands at `name`, read back from the disk; a link is not followed. Raises OSError if it cannot be read."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return NOTHING
    if not stat.S_ISREG(found.st_mode):
        return Seen(_kind(found.st_mode))
    file = os.open(name, _READ, dir_fd=directory)
    try:
        digest = hashlib.sha256()
        while data := os.read(file, _CHUNK):
            digest.update(data)
        return Seen("file", digest.hexdigest(), stat.S_IMODE(os.fstat(file).st_mode))
    finally:
        os.close(file)


def write_whole(directory: int, name: str, content: bytes, mode: int) -> None:
    """Put `content` at `name` with exactly `mode`; on disk when this returns. Raises OSError, and then the old file stands."""
    beside = beside_name(name)
    sweep(directory, name)
    file = os.open(beside, _CREATE, mode & 0o600, dir_fd=directory)
    try:
        try:
            os.fchmod(file, mode)
            _write_all(file, content)
            os.fsync(file)
        finally:
            os.close(file)
        os.rename(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        sweep(directory, name)  # what was begun is taken back
        raise
    os.fsync(directory)


def remove(directory: int, name: str) -> None:
    """Take a file away, on disk when this returns; one that is not there is done. Raises OSError."""
    sweep(directory, name)
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
        os.fsync(directory)


def sweep(directory: int, name: str) -> None:
    """Remove what a killed writer of `name` left behind."""
    with suppress(FileNotFoundError):
        os.unlink(beside_name(name), dir_fd=directory)


def beside_name(name: str) -> str:
    """The name of the new file that will take `name`; of fixed length, so that it is never too long."""
    return f".mesh-{hashlib.sha256(name.encode()).hexdigest()[:24]}.new"


def _write_all(file: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "directory"
    return "symbolic link" if stat.S_ISLNK(mode) else "special file"
