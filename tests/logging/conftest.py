"""Runs small programs in real processes, with a secret registered, and searches what they wrote for it."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.secrets.planting import LOGGED

PRELUDE = f"""
import asyncio, logging, os, sys, threading, warnings
import structlog
from mesh_runtime.logging import configure, install_loop_hook, register_secret
SECRET = {LOGGED.text!r}
register_secret(SECRET)
configure("json", "debug", masking=os.environ["MASKING"] == "1")
log = structlog.get_logger("author")
std = logging.getLogger("library")
"""


@dataclass(frozen=True)
class Written:
    """What a program wrote, on both streams, and its exit code."""

    stdout: str
    stderr: str
    code: int

    @property
    def found(self) -> list[str]:
        """The disguises of the secret that stand in it."""
        return LOGGED.found_in(self.stdout + self.stderr)

    @property
    def records(self) -> list[dict[str, Any]]:
        """Its lines on stdout; each must be a JSON object."""
        records = [json.loads(line) for line in self.stdout.splitlines()]
        assert all(isinstance(each, dict) for each in records)
        return records


Program = Callable[..., Written]


def run_program(path: Path, text: str, *, masking: bool = True) -> Written:
    """Run the text, as a file at ``path``, as a program of its own, at DEBUG, with the secret registered, masked unless said otherwise."""
    path.write_text(PRELUDE + text, "utf-8")
    environ = {"MASKING": "1" if masking else "0", "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, timeout=25, env=environ, check=False)
    return Written(done.stdout.decode(), done.stderr.decode(), done.returncode)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """``run_program`` in the test's own directory."""
    return lambda text, **how: run_program(tmp_path / "program.py", text, **how)
