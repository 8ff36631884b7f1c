"""Reads the documents: pages, front matter, tables, code blocks, and the blocks of text between headings. Judges nothing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GUIDE = DOCS / "guide"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md")))

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#{1,6}) (.*)$")
_SPAN = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Code:
    """A fenced block: what stands behind its fence, its text, the line on which it begins."""

    page: Path
    info: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Block:
    """A paragraph, a list's item or a table's row, with every heading above it."""

    page: Path
    line: int
    text: str
    headings: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def codes(page: Path, info: str | None = None) -> list[Code]:
    """The fenced blocks of a page, or those with just this info string."""
    text = page.read_text()
    found = [Code(page, one["info"].strip(), one["text"], text.count("\n", 0, one.start()) + 1) for one in _FENCE.finditer(text)]
    return [one for one in found if info is None or one.info == info]


def without_code(text: str) -> str:
    """The page with its fenced blocks blanked, line for line."""
    return _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)


def blocks(page: Path) -> Iterator[Block]:
    """Every paragraph, item and row of a page, fenced blocks left out."""
    above: list[tuple[int, str]] = []
    lines: list[str] = []
    begun = 0

    def block() -> Iterator[Block]:
        if lines:
            yield Block(page, begun, "\n".join(lines), tuple(words for _, words in above))
            lines.clear()

    for number, line in enumerate(without_code(page.read_text()).splitlines(), 1):
        heading = _HEADING.match(line)
        if heading or not line.strip() or line.startswith(("|", "- ")) or re.match(r"\d+\. ", line):
            yield from block()
        if heading:
            above[:] = [one for one in above if one[0] < len(heading[1])] + [(len(heading[1]), heading[2])]
        elif line.strip():
            begun = begun if lines else number
            lines.append(line)
    yield from block()


def headings(page: Path) -> list[str]:
    """The headings of a page, in order."""
    return [found[2] for line in without_code(page.read_text()).splitlines() if (found := _HEADING.match(line))]


def rows(page: Path, first: str, under: str = "") -> list[list[str]]:
    """The rows of the tables whose first column is headed ``first``, under the heading ``under`` if it is given."""
    found: list[list[str]] = []
    heading, inside = "", False
    for line in without_code(page.read_text()).splitlines():
        if at := _HEADING.match(line):
            heading = at[2]
        if not line.startswith("|"):
            inside = False
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells[0] == first:
            inside = under in ("", heading)
        elif inside and set("".join(cells)) - set("-: "):
            found.append(cells)
    return found


def spans(text: str) -> list[str]:
    """What stands between single backticks."""
    return _SPAN.findall(text)


def front_matter(page: Path) -> dict[str, str | list[str]]:
    """The fields between the two lines of dashes; a value in brackets is a list."""
    head, _, _ = page.read_text().removeprefix("---\n").partition("\n---\n")
    fields: dict[str, str | list[str]] = {}
    for line in head.splitlines():
        name, _, value = line.partition(":")
        value = value.strip()
        listed = value.startswith("[") and value.endswith("]")
        fields[name] = [one.strip() for one in value[1:-1].split(",") if one.strip()] if listed else value
    return fields


def relative(page: Path) -> str:
    """A page's path for a test's name."""
    return str(page.relative_to(ROOT))
