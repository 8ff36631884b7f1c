"""Fixtures of the tests of secrets."""

from tests.logging.conftest import program
from tests.startup.conftest import launch

__all__ = ["launch", "program"]
