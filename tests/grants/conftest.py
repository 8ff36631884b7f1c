"""Fixtures of the tests of grants."""

from pathlib import Path

import pytest

from tests.grants.parts import HonestConsumer, Mesh


@pytest.fixture
def mesh(tmp_path: Path) -> Mesh:
    """A mesh in which nothing is placed yet; see ``Mesh.entitle``."""
    return Mesh(tmp_path / "ledger.sqlite")


@pytest.fixture
def orders(mesh: Mesh) -> HonestConsumer:
    """A consumer that may have what it asks for."""
    mesh.entitle("orders@alpha")
    return HonestConsumer(mesh)
