"""Writes a private key to disk: whole or not at all, and never readable by others, not even for a moment."""

import os
import secrets
from pathlib import Path

PRIVATE = 0o600
PUBLIC = 0o644


def write_whole(path: Path, data: bytes, mode: int) -> None:
    """Put `data` at `path` by a new file that is renamed into place, on disk when this returns. Raises OSError."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(file, "wb") as out:
            # The mode given to open is narrowed by the umask; a public file is meant to be read by others.
            os.fchmod(out.fileno(), mode)
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
