"""Reads what may not be there yet: files that somebody else writes, perhaps long after this process began.

A missing, empty or unreadable file is a thing to wait for, with the path and the reason in words. Each attempt reads afresh,
so that a file mended or rotated from outside takes effect without a restart.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from mesh_runtime.logging import register_secret

_MAX_BYTES = 1_048_576


class NotThereYet(Exception):
    """A file that a setting names cannot be used yet; time or somebody else mends it. It is no malformed setting.

    Carries the `path` and the `reason` in words.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Credentials:
    """A login at the broker, as it stood in its files at one moment."""

    username: str
    password: SecretStr


def read_credentials(directory: Path) -> Credentials:
    """Read `username` and `password` from the directory, and have the password masked in every log from now on.

    Exactly one line end after each is dropped (editors and `echo` add one); everything else belongs to the value. Raises
    NotThereYet.
    """
    username = _read_line(directory / "username")
    password = _read_line(directory / "password")
    register_secret(password)
    return Credentials(username, SecretStr(password))


def read_file(path: Path) -> bytes:
    """Return what stands in a file that may come later; raises NotThereYet if it is missing, empty or unreadable."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotThereYet(path, "is not there yet") from None
    except OSError as error:
        raise NotThereYet(path, f"cannot be read: {error.strerror or type(error).__name__}") from error
    if not data:
        raise NotThereYet(path, "is empty")
    if len(data) > _MAX_BYTES:
        raise NotThereYet(path, f"is larger than {_MAX_BYTES} bytes, which cannot be right")
    return data


def _read_line(path: Path) -> str:
    data = read_file(path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        # Not chained: the error would carry the bytes.
        raise NotThereYet(path, "is not UTF-8") from None
    text = text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")
    if not text:
        raise NotThereYet(path, "is empty")
    return text
