"""What the plugin offers a test run, and what it costs one that does not use it."""

import pytest

from mesh_runtime.testing import plugin

LOADED = """
import sys

def test_what_is_loaded():
    loaded = {name for name in sys.modules if name.startswith("mesh_runtime.")}
    assert sorted(name for name in loaded if not name.startswith("mesh_runtime.testing")) == []
"""


def test_the_plugin_imports_nothing_of_the_library_before_a_test_asks_for_it(pytester: pytest.Pytester) -> None:
    """A broken library then breaks the tests of it, and not each test run of its environment."""
    pytester.makepyfile(LOADED)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_every_fixture_is_offered(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--fixtures", "-p", "no:cacheprovider")
    offered = [line.split(" ")[0] for line in result.outlines if "mesh_runtime/testing/" in line]
    assert sorted(offered) == sorted(name for name in plugin.__all__ if not name.startswith("_"))
