"""The records agree with themselves and with the code: issues, decisions, the glossary and the seats."""

import re
import subprocess
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from mesh_runtime.entrypoint import GROUP
from mesh_runtime.startup import Stage
from tests.docs.pages import DOCS, PAGES, ROOT, blocks, front_matter, headings, relative, rows, spans

ISSUES = sorted((DOCS / "issues").glob("*.md"))
DECISIONS = sorted((DOCS / "adr").glob("*.md"))
FIELDS = ("status", "opened", "located-in", "fixed-by", "amended-design")
SECTIONS = ("Symptom", "Why it matters beyond the instance", "Open questions")
STATUSES = ("open", "located", "fixed")
MODULES = {path.name for path in (ROOT / "modules").iterdir() if path.is_dir()}


def git(*arguments: str) -> str:
    """What git says of this repository; empty where it says nothing."""
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False, timeout=20).stdout.strip()


def against_lasting(fixed_by: str) -> str:
    """Why this is not what lasts: the full name of a merge commit, or a tag of a release. Empty: it lasts."""
    if re.fullmatch(r"v\d+\.\d+\.\d+", fixed_by):
        return "" if git("tag", "--list", fixed_by) == fixed_by else f"there is no tag {fixed_by}"
    if not re.fullmatch(r"[0-9a-f]{40}", fixed_by):
        return f"{fixed_by!r} is neither a commit's 40 digits nor a release's tag; a branch moves and goes"
    parents = git("show", "-s", "--format=%P", fixed_by).split()
    return "" if len(parents) > 1 else f"{fixed_by} is no merge commit of this repository"


def folder_of(module: str) -> str:
    """The path, from the repository's root, of what an importable name names."""
    file = import_module(module).__file__
    assert file is not None, f"{module} is no module with a source"
    path = Path(file).relative_to(ROOT)
    return str(path.parent if path.name == "__init__.py" else path)


def test_there_are_the_records_that_the_project_comes_from() -> None:
    assert {"058", "061", "062"} <= {page.stem for page in ISSUES}


@pytest.mark.parametrize("page", ISSUES, ids=relative)
class TestIssue:
    def test_its_heading_bears_the_number_of_its_file(self, page: Path) -> None:
        assert headings(page)[0].partition(":")[0] == page.stem

    def test_its_front_matter_is_whole(self, page: Path) -> None:
        fields = front_matter(page)
        assert tuple(fields) == FIELDS
        assert fields["status"] in STATUSES
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", str(fields["opened"]))
        assert isinstance(fields["located-in"], list)
        assert isinstance(fields["amended-design"], list)

    def test_it_has_its_sections(self, page: Path) -> None:
        sections = headings(page)[1:]
        wanted = SECTIONS if front_matter(page)["status"] == "open" else (*SECTIONS, "Decision")
        assert [one for one in sections if one in wanted] == list(wanted)

    def test_it_names_modules_that_exist(self, page: Path) -> None:
        fields = front_matter(page)
        assert fields["located-in"] or fields["status"] == "open"
        for module in fields["located-in"]:
            assert (ROOT / folder_of(module)).exists()

    def test_what_it_says_that_it_amended_exists(self, page: Path) -> None:
        for path in front_matter(page)["amended-design"]:
            assert (ROOT / path).is_file(), f"{path} is not there"

    def test_what_fixed_it_lasts_and_lies_in_a_module_that_it_names(self, page: Path) -> None:
        fields = front_matter(page)
        fixed_by = str(fields["fixed-by"])
        assert bool(fixed_by) == (fields["status"] == "fixed"), "fixed-by and status say two things"
        if fixed_by:
            assert not against_lasting(fixed_by)
            changed = git("diff", "--name-only", f"{fixed_by}^1", fixed_by).splitlines()
            received = [one for one in fields["located-in"] if any(path.startswith(folder_of(one)) for path in changed)]
            assert received, f"located-in names no module that received {fixed_by}"


@pytest.mark.parametrize("passing", ["main", "HEAD", "v9.9.9", "fix/058", "0" * 40, "1b5c42e"])
def test_what_passes_is_not_taken_for_what_lasts(passing: str) -> None:
    assert against_lasting(passing)


@pytest.mark.parametrize("page", DECISIONS, ids=relative)
def test_a_decision_bears_its_number_its_status_and_what_was_rejected(page: Path) -> None:
    number = page.name[:4]
    assert headings(page)[0].startswith(f"{number}: ")
    status = [line for line in page.read_text().splitlines() if line.startswith("Status: ")]
    assert len(status) == 1
    assert re.match(r"Status: (accepted|superseded by \[\d{4}\])", status[0])
    assert headings(page)[1:] == ["Context", "Decision", "Rejected"]


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [page.name[:5] for page in DECISIONS] == [f"{number:04}-" for number in range(1, len(DECISIONS) + 1)]


def test_the_open_questions_of_058_are_answered_by_decisions() -> None:
    for number in ("0001", "0002"):
        (page,) = (one for one in DECISIONS if one.name.startswith(number))
        assert "(../issues/058.md)" in page.read_text()
        assert f"ADR {number}" in (DOCS / "issues" / "058.md").read_text()


# ---------------------------------------------------------------------------------------------------- words and seats


def words() -> dict[str, str]:
    return {word: meaning for row in rows(DOCS / "glossary.md", "word") for word, meaning in [row] for word in word.split(", ")}


def installed_seats() -> dict[str, str]:
    """Seat to the module that takes it, of what is built."""
    loaded = {entry.name: entry.load() for entry in entry_points(group=GROUP) if entry.name in MODULES}
    return {cls.seat: name for name, cls in loaded.items() if cls.seat is not None}


def test_the_glossary_names_the_seats_and_the_controllers_as_its_seat_section_does() -> None:
    seat = words()["seat"]
    (named,) = re.findall(r"The controller's seat is named `([a-z]+)`", seat)
    assert installed_seats() == {named: "controller"}
    assert f"holds the seat `{named}`" in words()["controller"]
    before, _, _ = seat.partition(".")
    assert spans(before) == ["controller", "broker", "store"]


def test_every_page_calls_the_controllers_seat_as_the_glossary_does() -> None:
    wrong = [
        f"{block}: {other}"
        for page in PAGES
        for block in blocks(page)
        for other in re.findall(r"seats? (?:named |is |of )?`([a-z]+)`", block.text)
        if other not in ("controller", "broker", "store")
    ]
    assert not wrong


def test_the_installation_table_names_the_seats_and_what_stands() -> None:
    table = {row[0]: row for row in rows(DOCS / "design" / "modules.md", "module")}
    assert {row[1]: name for name, row in table.items() if row[1]} == {"controller": "controller", "broker": "broker", "store": "store"}
    for name, (_, _, installed, _, stands) in table.items():
        assert ("not built yet" in stands) == (name not in MODULES), f"{name}: {stands}"
        assert bool(installed) == (name in MODULES), f"{name}: {installed}"


def test_the_design_says_that_one_controller_one_store_and_one_broker_are_enforced() -> None:
    said = " ".join((DOCS / "design" / "modules.md").read_text().split())
    assert "One controller, one store and one broker are *enforced*" in said


def test_the_glossary_names_every_stage_in_order() -> None:
    assert spans(words()["stage"]) == [str(stage) for stage in Stage if stage is not Stage.READY]


def test_no_page_calls_a_machine_a_node() -> None:
    """*Node* is a machine of a lab only; the records of what was seen keep the words in which they were written."""
    pages = [page for page in PAGES if page.parent.name != "issues" and page.name != "glossary.md"]
    assert not [
        str(block) for page in pages for block in blocks(page) if re.search(r"\bnodes?\b(?!-)", block.text) and "lab" not in block.text
    ]
