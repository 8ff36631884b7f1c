"""Runs small programs in real processes, and searches what they wrote for a secret in every disguise."""

import base64
import json
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PLAIN_PART = "S3cr3t-xyz"
"""The part of the secret that no escape changes: a search for it sees through any mixture of escapes."""

SECRET = PLAIN_PART + "/+ü\"'\\ %41"
"""A password with all that escapes differently somewhere."""

PRELUDE = f"""
import asyncio, logging, os, sys, threading, warnings
import structlog
from mesh_runtime.logging import configure, install_loop_hook, register_secret
SECRET = {SECRET!r}
register_secret(SECRET)
configure("json", "debug", masking=os.environ["MASKING"] == "1")
log = structlog.get_logger("author")
std = logging.getLogger("library")
"""


def disguises(secret: str) -> Iterator[str]:
    """The secret as it may stand in an output: as it is, quoted, escaped, and in base64 at each alignment."""
    data = secret.encode()
    yield PLAIN_PART
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield json.dumps(json.dumps(secret))[3:-3]
    yield repr(secret)[1:-1]
    yield repr(data)[2:-1]
    yield data.hex()
    yield urllib.parse.quote(secret)
    yield urllib.parse.quote(secret, safe="")
    yield urllib.parse.quote_plus(secret)
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            # What the neighbours have no part in: four characters for each three whole bytes.
            yield encode(data[(3 - before) % 3 :])[: len(data[(3 - before) % 3 :]) // 3 * 4].decode()


@dataclass(frozen=True)
class Written:
    """What a program wrote, on both streams, and its exit code."""

    stdout: str
    stderr: str
    code: int

    @property
    def found(self) -> list[str]:
        """The disguises of the secret that stand in it."""
        both = self.stdout + self.stderr
        return [each for each in disguises(SECRET) if each in both]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Its lines on stdout; each must be a JSON object."""
        records = [json.loads(line) for line in self.stdout.splitlines()]
        assert all(isinstance(each, dict) for each in records)
        return records


Program = Callable[..., Written]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Runs the text as a program of its own, at DEBUG, with the secret registered, masked unless said otherwise."""

    def run(text: str, *, masking: bool = True, prelude: str = PRELUDE) -> Written:
        path = tmp_path / "program.py"
        path.write_text(prelude + text, "utf-8")
        environ = {"MASKING": "1" if masking else "0", "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run([sys.executable, str(path)], capture_output=True, timeout=20, env=environ, check=False)
        return Written(done.stdout.decode(), done.stderr.decode(), done.returncode)

    return run
