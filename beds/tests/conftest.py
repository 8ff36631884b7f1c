"""Where beds put what they need while they run."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """An empty directory that others may pass through: root's PostgreSQL runs as another user, and pytest's own directories are shut."""
    directory = Path(tempfile.mkdtemp(prefix="mesh-bed-"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
