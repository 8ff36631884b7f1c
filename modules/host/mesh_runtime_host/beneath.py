"""Walks from the root to a file's directory without ever leaving the root, whatever links stand in the way.

Each step opens one name relative to the directory before it and never follows a link by itself (`openat` with `O_NOFOLLOW`), so a link that
is put in place at the same moment is met as a link. A link that stays beneath the root is followed by hand, one that leaves it ends the
walk. The host's own state directory is never entered, by whatever name.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS = 40
#: Mode of a directory that is made on the way.
DIRECTORY_MODE = 0o755


class OutOfBounds(Exception):
    """The way to a file leaves the root, or enters the host's own state."""


@contextmanager
def directory_of(root: Path, path: str, *, closed: Path, make: bool = False) -> Iterator[int]:
    """A descriptor of the directory of `path` under `root`, closed at the end. `closed` is the directory that must not be entered.

    `make` makes missing directories, mode 0755. Raises OutOfBounds; FileNotFoundError if one is missing; NotADirectoryError and other
    OSError for what stands in the way, and where the root itself is gone.
    """
    own = _key(closed.stat()) if closed.exists() else None
    with ExitStack() as opened:

        def enter(at: int | None, name: str) -> int:
            file = _open_root(root) if at is None else os.open(name, _DIRECTORY, dir_fd=at)
            opened.callback(os.close, file)
            refuse_own(file, own)
            return file

        way = [enter(None, "")]
        ahead = [part for part in path.split("/")[:-1] if part][::-1]
        links = 0
        while ahead:
            name = ahead.pop()
            if name == ".":
                continue
            if name == "..":
                if len(way) == 1:
                    raise OutOfBounds("a link on the way leaves the root")
                way.pop()
                continue
            target = _link_at(way[-1], name)
            if target is not None:
                links += 1
                if links > _LINKS:
                    raise OSError(errno.ELOOP, "too many links on the way", name)
                if target.startswith("/"):
                    refuse_absolute(target, root)
                    way = way[:1]
                ahead += [part for part in target.split("/") if part][::-1]
                continue
            if make:
                _make_missing(way[-1], name)
            way.append(enter(way[-1], name))
        yield way[-1]


def _open_root(root: Path) -> int:
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:  # a disk that is not mounted holds all the same what it held: not to be taken for a file that is missing
        raise NotADirectoryError(errno.ENOTDIR, "the root is not there", str(root)) from None


def refuse_own(directory: int, own: tuple[int, int] | None) -> None:
    """Raise OutOfBounds if a directory is the host's own, by whatever name it was reached."""
    if _key(os.fstat(directory)) == own:
        raise OutOfBounds("the way leads into the host's own state directory")


def refuse_absolute(target: str, root: Path) -> None:
    """Raise OutOfBounds for an absolute link, unless the root is the machine's own."""
    if root.resolve() != Path("/"):
        raise OutOfBounds(f"a link on the way leaves the root: it points to {target}")


def _link_at(directory: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as none:
        if none.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _make_missing(directory: int, name: str) -> None:
    try:
        os.mkdir(name, DIRECTORY_MODE, dir_fd=directory)
    except FileExistsError:
        return
    made = os.open(name, _DIRECTORY, dir_fd=directory)
    try:
        os.fchmod(made, DIRECTORY_MODE)  # the umask may have narrowed it
        os.fsync(made)
    finally:
        os.close(made)
    os.fsync(directory)


def _key(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino
