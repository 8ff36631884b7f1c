"""Every snippet of the guide is run: classes are made, refusals are those that are shown, tests pass, command lines are read."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import typer

from mesh_runtime.contracts import ContractError
from mesh_runtime.settings import load_settings
from mesh_runtime.testing.ledgers import LedgerSpecification
from mesh_runtime_operator.cli import app
from tests.docs.pages import GUIDE, PAGES, ROOT, Code, codes

WRITE = GUIDE / "write-a-module.md"
RUN_ONE = GUIDE / "run-one.md"
PROVIDE = GUIDE / "provide-grants.md"
EXAMPLE = GUIDE / "example"
PYTHON = [code for page in PAGES for code in codes(page) if code.info == "python"]
REFUSED = [code for page in PAGES for code in codes(page) if code.info == "python refused"]
TESTS = [code for page in PAGES for code in codes(page) if code.info == "python test"]
CONSOLE = [code for page in PAGES for code in codes(page) if code.info == "console"]
INFOS = {"", "python", "python refused", "python test", "text", "console", "sh", "json", "toml"}


@pytest.fixture
def run() -> Iterator[Callable[[Code], ModuleType]]:
    """Runs a snippet as a module of its own, in which annotations can be looked up."""
    made: list[str] = []

    def runs(code: Code) -> ModuleType:
        name = f"snippet_{code.page.stem.replace('-', '_')}_{code.line}"
        module = sys.modules[name] = ModuleType(name)
        made.append(name)
        exec(compile(code.text, str(code), "exec"), vars(module))  # noqa: S102 - what this test is for
        return module

    yield runs
    for name in made:
        del sys.modules[name]


def test_no_snippet_is_of_a_kind_that_nothing_runs() -> None:
    assert not [str(code) for page in PAGES for code in codes(page) if code.info not in INFOS]
    assert PYTHON
    assert REFUSED
    assert TESTS
    assert CONSOLE


@pytest.mark.parametrize("code", PYTHON, ids=str)
def test_a_snippet_runs(code: Code, run: Callable[[Code], ModuleType]) -> None:
    module = run(code)
    assert [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]


@pytest.mark.parametrize("code", REFUSED, ids=str)
def test_what_is_refused_is_refused_in_the_words_that_are_shown(code: Code, run: Callable[[Code], ModuleType]) -> None:
    after = [one for one in codes(code.page) if one.line > code.line]
    assert after[0].info == "text", "the words of the refusal follow it"
    with pytest.raises(ContractError) as refused:
        run(code)
    assert str(refused.value) == after[0].text.strip()


def source_of_the_example() -> Path:
    (source,) = [path for path in EXAMPLE.rglob("*.py") if "mesh_motd" in str(path.relative_to(EXAMPLE))]
    return source


def test_the_first_whole_module_is_the_example() -> None:
    assert codes(WRITE, "python")[0].text == source_of_the_example().read_text()


def test_the_project_file_that_is_shown_is_the_examples() -> None:
    (shown,) = codes(WRITE, "toml")
    assert shown.text in (EXAMPLE / "pyproject.toml").read_text()


def test_the_provisioner_that_is_shown_is_short() -> None:
    assert len(codes(PROVIDE, "python")[0].text.splitlines()) <= 60


# ---------------------------------------------------------------------------------------------------- as an author does


def put_modules(directory: Path) -> None:
    """The modules that the shown tests import and that are no distribution."""
    (directory / "mesh_shelves.py").write_text(codes(PROVIDE, "python")[0].text)


def shown_in(code: Code) -> list[str]:
    """The names of the tests that a snippet shows, or inherits."""
    inherited = [name for name in vars(LedgerSpecification) if name.startswith("test_")] if "(LedgerSpecification)" in code.text else []
    return [*re.findall(r"def (test_\w+)", code.text), *inherited]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example is installed, as an author would, but offline."""
    target = tmp_path_factory.mktemp("installed")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target"]
    made = subprocess.run([*install, str(target), str(EXAMPLE)], capture_output=True, text=True, check=False, timeout=120)
    assert made.returncode == 0, made.stderr
    return target


def environment(installed: Path) -> dict[str, str]:
    """The process's own, with the example, and with nothing of a mesh."""
    path = os.pathsep.join([str(installed / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("MESH_")},
        "PYTHONPATH": str(installed),
        "PATH": path,
    }


@pytest.mark.timeout(240)
def test_the_tests_that_the_guide_shows_pass(installed: Path, tmp_path: Path) -> None:
    """In a test run of their own, with the published plugin and nothing of this repository's settings."""
    put_modules(tmp_path)
    for number, code in enumerate(TESTS):
        (tmp_path / f"test_snippet_{number}.py").write_text(code.text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, cwd=tmp_path, env=environment(installed))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    shown = [name for code in TESTS for name in shown_in(code)]
    assert sorted(re.findall(r"^PASSED \S+::(test_\w+)", ran.stdout, re.MULTILINE)) == sorted(shown)


@pytest.mark.timeout(150)
def test_the_example_can_be_placed_where_it_is_installed(installed: Path) -> None:
    """The controller finds its manifest without importing it."""
    asking = "from mesh_runtime_controller.catalog import read_catalog as read; print('motd' in read().manifests, read().unusable)"
    ran = subprocess.run([sys.executable, "-c", asking], capture_output=True, text=True, check=True, timeout=60, env=environment(installed))
    assert ran.stdout == "True {}\n"


@pytest.mark.timeout(240)
def test_what_is_shown_passes_mypy_as_strict_as_this_repository(tmp_path: Path) -> None:
    files = {f"snippet_{number}.py": code for number, code in enumerate([*PYTHON, *TESTS])}
    for name, code in files.items():
        (tmp_path / name).write_text(code.text)
    shutil.copytree(EXAMPLE / "mesh_motd", tmp_path / "mesh_motd")
    put_modules(tmp_path)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path / "cache"), *files]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, cwd=tmp_path)
    said = re.sub(r"snippet_\d+\.py", lambda name: str(files[name[0]]), ran.stdout)
    assert ran.returncode == 0, said


# ---------------------------------------------------------------------------------------------------- command lines


def lines_of(code: Code) -> Iterator[tuple[str, str]]:
    """Each command of a console, with the output that is shown."""
    for part in re.split(r"^\$ ", code.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


RUN = [(code, command, shown) for code in CONSOLE for command, shown in lines_of(code) if command.startswith("mesh-runtime-")]
ASKED = [command for code in CONSOLE for command, _ in lines_of(code) if command.startswith("mesh ")]
SPANNED = [
    span
    for page in PAGES
    for span in re.findall(r"`(mesh (?:place|remove|plan|push|status|grants|rotate|revoke|rekey|parked)[^`\n]* [^`\n]*)`", page.read_text())
]


def test_every_line_of_a_console_is_checked() -> None:
    assert not [command for code in CONSOLE for command, _ in lines_of(code) if not command.startswith(("mesh ", "mesh-runtime-"))]
    assert RUN
    assert ASKED
    assert SPANNED


@pytest.mark.timeout(150)
@pytest.mark.parametrize(("code", "command", "shown"), RUN, ids=[command for _, command, _ in RUN])
def test_a_command_prints_what_is_shown(code: Code, command: str, shown: str, installed: Path, tmp_path: Path) -> None:
    line, _, to = command.partition(" > ")
    ran = subprocess.run(
        shlex.split(line), capture_output=True, text=True, check=False, timeout=30, env=environment(installed), cwd=tmp_path
    )
    if to:
        assert ran.stdout == (EXAMPLE / to).read_text()
    else:
        assert ran.stdout + ran.stderr == shown


@pytest.mark.parametrize("line", [*ASKED, *SPANNED])
def test_the_command_mesh_reads_the_line(line: str) -> None:
    """Each option and argument is one that it has; nothing is asked."""
    group = typer.main.get_command(app)
    _, name, *arguments = shlex.split(line.replace("[KEY=VALUE]...", "key=value").replace("[MACHINE]...", "alpha"))
    numbers = [word if word != "S" else "1" for word in arguments]
    command = getattr(group, "commands", {})[name]
    if subcommands := getattr(command, "commands", {}):
        name, *numbers = numbers
        command = subcommands[name]
    command.make_context(name, numbers)


def test_a_line_that_it_does_not_read_is_seen() -> None:
    command = getattr(typer.main.get_command(app), "commands", {})["push"]
    with pytest.raises(Exception, match="No such option"):
        command.make_context("push", ["--gone"])


def test_the_first_environment_of_the_page_is_one_that_a_runtime_takes() -> None:
    (script,) = [code for code in codes(RUN_ONE, "sh") if "MESH_BROKER=" in code.text]
    environ = dict(re.findall(r"^export (MESH_\w+)=(\S+)", script.text, re.MULTILINE))
    loaded = load_settings("networking", None, environ)
    assert loaded.runtime.machine == "alpha"
    assert not loaded.warnings
    assert script.text.splitlines()[-1] == "mesh-runtime-networking run"
