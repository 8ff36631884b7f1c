"""Credentials are read afresh for each attempt, and a file that is not there yet is waited for, not refused."""

import os
from pathlib import Path

import pytest

from mesh_runtime.logging import mask_text
from mesh_runtime.settings import Credentials, NotThereYet, read_credentials


def write(directory: Path, username: bytes = b"web@node-1\n", password: bytes = b"pa55-w0rd\n") -> Path:
    (directory / "username").write_bytes(username)
    (directory / "password").write_bytes(password)
    return directory


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"pa55-w0rd", "pa55-w0rd"),
        (b"pa55-w0rd\n", "pa55-w0rd"),
        (b"pa55-w0rd\r\n", "pa55-w0rd"),
        (b"pa55-w0rd\n\n", "pa55-w0rd\n"),
        (b" a:b/c@d?e#f%g&h+i j \n", " a:b/c@d?e#f%g&h+i j "),
        ("ü\U0001f600\"'".encode(), "ü\U0001f600\"'"),
    ],
)
def test_exactly_one_line_end_is_dropped(tmp_path: Path, written: bytes, read: str) -> None:
    credentials = read_credentials(write(tmp_path, password=written))
    assert credentials.username == "web@node-1"
    assert credentials.password.get_secret_value() == read


def test_the_password_never_shows_and_is_masked_from_then_on(tmp_path: Path) -> None:
    credentials = read_credentials(write(tmp_path, password=b"drawn-for-this-test"))
    assert "drawn-for-this-test" not in repr(credentials) + str(credentials)
    assert mask_text("it is drawn-for-this-test") == "it is ***"


def test_each_attempt_reads_afresh(tmp_path: Path) -> None:
    with pytest.raises(NotThereYet):
        read_credentials(tmp_path / "later")
    (tmp_path / "later").mkdir()
    first = read_credentials(write(tmp_path / "later"))
    second = read_credentials(write(tmp_path / "later", password=b"rotated"))
    assert isinstance(first, Credentials)
    assert second.password.get_secret_value() == "rotated"


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "is not there yet"), (b"", "is empty"), (b"\n", "is empty"), (b"\xff\xfe", "is not UTF-8")]
)
def test_what_cannot_be_used_yet_says_which_file_and_why(tmp_path: Path, content: bytes | None, reason: str) -> None:
    write(tmp_path)
    (tmp_path / "password").unlink()
    if content is not None:
        (tmp_path / "password").write_bytes(content)
    with pytest.raises(NotThereYet) as caught:
        read_credentials(tmp_path)
    assert (caught.value.path, caught.value.reason) == (tmp_path / "password", reason)


def test_a_file_that_cannot_be_opened_is_waited_for_too(tmp_path: Path) -> None:
    (tmp_path / "username").mkdir()
    with pytest.raises(NotThereYet, match=f"cannot be read: {os.strerror(21)}"):
        read_credentials(tmp_path)
