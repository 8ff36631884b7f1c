"""Pages lead where they say, name what there is, and mark what is not built yet; commands and the first module are the real ones."""

import ast
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import typer

import mesh_runtime
import mesh_runtime_networking
from mesh_runtime.entrypoint import GROUP, PROGRAM
from mesh_runtime_operator.cli import app
from tests.docs.pages import DOCS, GUIDE, PAGES, ROOT, Block, blocks, codes, headings, relative, rows, spans, without_code

MARK = "not built yet"
#: Words for what the design has and the code does not. Whoever builds one takes its word away here.
NOT_BUILT = ("WireGuard", "econcil", "mesh init")
#: Programs that the guide writes as examples.
EXAMPLES = {"motd", "<module>", "<name>"}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def commands() -> set[str]:
    """What follows ``mesh`` on a command line."""
    return set(getattr(typer.main.get_command(app), "commands", {}))


def anchor(heading: str) -> str:
    """A heading's anchor, as the forge makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def broken_links(page: Path, text: str) -> Iterator[str]:
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, part = target.partition("#")
        to = page.parent / file if file else page
        if not to.exists() or (part and part not in map(anchor, headings(to))):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_link_leads_somewhere_in_this_repository(page: Path) -> None:
    assert not list(broken_links(page, without_code(page.read_text())))


def test_a_broken_link_is_seen() -> None:
    page = ROOT / "README.md"
    assert list(broken_links(page, "[a](docs/gone.md) [b](README.md#two-commands) [c](#gone) [d](docs)")) == ["docs/gone.md", "#gone"]


def test_every_page_is_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop().resolve()
        found = sorted(page.glob("*.md")) if page.is_dir() else [page]
        for one in found:
            if one in seen or one.suffix != ".md":
                continue
            seen.add(one)
            ahead += [one.parent / target.partition("#")[0] for target in LINK.findall(without_code(one.read_text())) if ":" not in target]
    assert not set(PAGES) - seen


# ---------------------------------------------------------------------------------------------------- what there is


def missing(block: Block) -> Iterator[str]:
    """What a block names that there is not, unless it says so."""
    if MARK in block.text.lower() or any(MARK in one.lower() for one in block.headings):
        return
    for span in spans(block.text):
        if (found := re.match(r"mesh ([a-z]+)", span)) and not set(found[1].split("|")) & commands():
            yield span
        if (found := re.match(rf"{PROGRAM}([a-z<>-]+)", span)) and found[1] not in modules() | EXAMPLES:
            yield span
    yield from (word for word in NOT_BUILT if re.search(rf"\b\w?{word}", block.text))


def modules() -> set[str]:
    return {entry.name for entry in entry_points(group=GROUP)}


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "issues"], ids=relative)
def test_what_is_not_built_yet_is_marked_so(page: Path) -> None:
    assert not [(str(block), missed) for block in blocks(page) for missed in missing(block)]


@pytest.mark.parametrize("text", ["run `mesh token new`", "start `mesh-runtime-store`", "reconciling", "real WireGuard"])
def test_what_is_not_marked_is_seen(text: str) -> None:
    assert list(missing(Block(ROOT / "README.md", 1, text, ("Some heading",))))
    assert not list(missing(Block(ROOT / "README.md", 1, text, ("Not built yet",))))
    assert not list(missing(Block(ROOT / "README.md", 1, f"{text} (not built yet)", ())))


def test_known_flaws_list_every_module_that_the_design_has_and_nobody_built() -> None:
    page = DOCS / "known-flaws.md"
    (unbuilt,) = (block.text for block in blocks(page) if "Not built yet" in block.headings)
    for name, *_, stands in rows(DOCS / "design" / "modules.md", "module"):
        assert (MARK not in stands) or re.search(rf"\b{name}\b", unbuilt), f"{name} is not built and is not listed"


def test_the_guide_mentions_every_public_name() -> None:
    guide = "\n".join(page.read_text() for page in sorted(GUIDE.glob("*.md")))
    assert not [name for name in mesh_runtime.__all__ if not re.search(rf"\b{name}\b", guide)]


def test_every_fixture_of_the_plugin_is_in_the_guide() -> None:
    from mesh_runtime.testing import plugin

    listed = {name for row in rows(GUIDE / "write-a-module.md", "fixture") for name in spans(row[0])}
    assert listed == {name for name in plugin.__all__ if not name.startswith("_")}


# ---------------------------------------------------------------------------------------------------- commands, the first module


def listed_by_run() -> list[str]:
    said = subprocess.run([str(ROOT / "run")], capture_output=True, text=True, check=True, timeout=20).stdout
    return re.findall(r"^  ([a-z-]+)  ", said, re.MULTILINE)


def test_contributors_read_of_every_command_of_run_and_of_no_other() -> None:
    assert listed_by_run()
    assert [spans(first)[0].removeprefix("./run ") for first, _ in rows(ROOT / "CONTRIBUTING.md", "command")] == listed_by_run()


def test_every_page_names_commands_that_run_has() -> None:
    named = {(page.name, name) for page in PAGES for name in re.findall(r"\./run ([a-z-]+)", page.read_text()) if name != "alone"}
    assert {name for _, name in named} <= set(listed_by_run())


def test_the_readme_shows_the_two_commands_that_are_all_the_set_up() -> None:
    assert codes(ROOT / "README.md", "")[0].text == "./run demo\n./run test\n"


def bare(tree: ast.Module) -> str:
    """The class of a source, without docstrings and as Python would write it."""
    (cls,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    for node in ast.walk(cls):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.unparse(cls)


def test_the_module_in_the_readme_is_the_module_networking() -> None:
    (shown,) = codes(ROOT / "README.md", "python")
    assert bare(ast.parse(shown.text)) == bare(ast.parse(Path(mesh_runtime_networking.__file__).read_text()))


def test_contributors_are_shown_a_removal_that_is_in_the_code() -> None:
    ((file, line),) = re.findall(r"Removal: (\S+): (.*)$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert [one.strip() for one in (ROOT / file).read_text().splitlines()].count(line) == 1


def test_contributors_are_shown_paths_that_are_there() -> None:
    rooms = [path for row in rows(ROOT / "CONTRIBUTING.md", "it is about") for path in spans(row[1])]
    assert rooms
    assert not [path for path in rooms if "<" not in path and not (ROOT / path).exists()]
    (shown,) = re.findall(r"`\.venv/bin/pytest (\S+) -k \w+`", (ROOT / "CONTRIBUTING.md").read_text())
    assert (ROOT / shown).exists()
