"""Shows that the tests of the field cases can fail: takes away the one line that each of them is about, and wants its assertion to fail.

usage: python -m tests.mutate [-k WORDS] [--list]

A test names its line and its assertion in its docstring::

    Removal: mesh_runtime/trust/issuer.py: builder = builder.add_extension(self._authority_key_identifier(), critical=False)
    Assertion: assert refusal(client, server, name) == ""

In a copy of the tree that line becomes ``pass``; the mutant must still import; then just that test is run on it, and just the named
assertion must fail. Exit 0 only if every mutant was found out that way.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "*.egg-info", ".hypothesis"
)
_REMOVAL = re.compile(r"^\s*Removal: (?P<file>\S+\.py): (?P<line>.+?)\s*$", re.MULTILINE)
_ASSERTION = re.compile(r"^\s*Assertion: (?P<text>.+?)\s*$", re.MULTILINE)
#: Seconds for one mutant's test, its broker's start included.
LIMIT = 300.0


@dataclass(frozen=True)
class Mutant:
    """A line to take away, and the test that must notice by one of its assertions."""

    test: str
    file: str
    line: str
    assertion: str

    def __str__(self) -> str:
        return f"{self.test}: without `{self.line}` ({self.file})"


def mutants() -> Iterator[Mutant]:
    """Every mutant that a test of this repository names; exits with words where a docstring names half of one."""
    places = [ROOT / "tests", *sorted(ROOT.glob("modules/*/tests")), ROOT / "beds"]
    for path in sorted(file for place in places for file in place.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)) and "Removal:" in text:
                removal, assertion = _REMOVAL.search(text), _ASSERTION.search(text)
                if removal is None or assertion is None:
                    sys.exit(f"{path.relative_to(ROOT)}::{node.name}: its docstring needs `Removal: FILE: LINE` and `Assertion: TEXT`")
                yield Mutant(f"{path.relative_to(ROOT)}::{node.name}", removal["file"], removal["line"], assertion["text"])


def verdict_on(mutant: Mutant, options: list[str]) -> str:
    """Nothing if the mutant was found out by the named assertion, else what went wrong."""
    with tempfile.TemporaryDirectory(prefix="mesh-mutant-") as directory:
        copy = Path(directory) / "tree"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        path = copy / mutant.file
        if not path.is_file():
            return f"there is no file {mutant.file}"
        lines = path.read_text().splitlines()
        found = [at for at, line in enumerate(lines) if line.strip() == mutant.line]
        if len(found) != 1:
            return f"the line stands {len(found)} times in {mutant.file}, it must stand once"
        lines[found[0]] = lines[found[0]].removesuffix(mutant.line) + "pass"
        path.write_text("\n".join(lines) + "\n")
        imported = _run(copy, ["-c", f"import {_module_of(mutant.file)}"], 60)
        if imported.returncode:
            return f"the mutant does not import: {imported.stdout[-400:]}"
        try:
            tested = _run(copy, ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", *options, mutant.test], LIMIT)
        except subprocess.TimeoutExpired:
            return f"its test did not end within {LIMIT:g} s"
        if tested.returncode != 1:
            return f"pytest ended with {tested.returncode}, the test must fail:\n{tested.stdout[-1500:]}"
        shown = " ".join(tested.stdout.split())
        if " ".join(mutant.assertion.split()) not in shown or ("AssertionError" not in shown and " assert " not in shown):
            return f"it failed, but not by the assertion `{mutant.assertion}`:\n{tested.stdout[-1500:]}"
    return ""


def _run(copy: Path, arguments: list[str], limit: float) -> subprocess.CompletedProcess[str]:
    roots = [str(copy), *(str(path) for path in sorted(copy.glob("modules/*")))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=copy, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, check=False
    )


def _module_of(file: str) -> str:
    parts = list(Path(file).with_suffix("").parts)
    if parts[0] == "modules":
        parts = parts[2:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def main() -> int:
    """Run the mutants that were chosen; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description="Take away a line for each field case; its test must fail.")
    parser.add_argument("-k", dest="words", default="", help="only tests whose name contains this")
    parser.add_argument("--list", action="store_true", help="only list them")
    parser.add_argument("--broker-rootfs", default="", help="passed on to pytest")
    chosen = parser.parse_args()
    all_of_them = [one for one in mutants() if chosen.words in one.test]
    survived = 0
    for one in all_of_them:
        if chosen.list:
            print(one)  # noqa: T201 - the command's own output, as below
            continue
        wrong = verdict_on(one, [f"--broker-rootfs={chosen.broker_rootfs}"] if chosen.broker_rootfs else [])
        survived += bool(wrong)
        print(f"{'SURVIVED' if wrong else 'found out'}  {one}" + (f"\n    {wrong}" if wrong else ""), flush=True)  # noqa: T201
    if not chosen.list:
        print(f"{len(all_of_them) - survived} of {len(all_of_them)} mutants found out")  # noqa: T201
    return 1 if survived or not all_of_them else 0


if __name__ == "__main__":
    sys.exit(main())
