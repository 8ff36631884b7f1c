"""What an operator looks up is what the code says: settings, stages, causes, refusals, exit codes, counts, pace, names on the wire."""

import re
import signal
from collections.abc import Iterator
from importlib.metadata import entry_points

import pytest

from mesh_runtime import entrypoint
from mesh_runtime.contracts import Reason, wire
from mesh_runtime.entrypoint import GROUP
from mesh_runtime.runtime import life
from mesh_runtime.settings import ModuleSettings, RuntimeSettings, SettingRow, describe_settings
from mesh_runtime.startup import PACES, Stage
from mesh_runtime_operator.exits import WORDS
from tests.docs import saying
from tests.docs.pages import DOCS, GUIDE, PAGES, ROOT, headings, rows, spans

RUN_ONE = GUIDE / "run-one.md"
CAUSES = GUIDE / "stages-and-causes.md"
EXAMPLES = {"MESH_MOTD_PATH", "MESH_WEB_PORT", "MESH_WEB_TOKEN", "MESH_WEB_ROOT"}
"""Settings of modules that the guide writes as examples."""


def settings_of_modules() -> dict[str, tuple[SettingRow, ...]]:
    """Module to its own settings, of every module of this repository that has some."""
    own: dict[str, type[ModuleSettings]] = {
        entry.name: entry.load().settings_class() for entry in entry_points(group=GROUP) if (ROOT / "modules" / entry.name).is_dir()
    }
    described = {name: describe_settings(kind, f"MESH_{name.upper()}_") for name, kind in own.items()}
    return {name: one for name, one in sorted(described.items()) if one}


def listed(page_rows: list[list[str]]) -> list[tuple[str, str, str]]:
    return [(spans(variable)[0], default.strip("`"), meaning) for variable, default, meaning in page_rows]


def as_listed(rows: tuple[SettingRow, ...]) -> Iterator[tuple[str, str, str]]:
    for one in rows:
        yield one.variable, "required" if one.required else one.default, one.description


def test_the_guide_lists_every_setting_with_its_default_and_its_meaning_and_no_other() -> None:
    wanted = [*as_listed(describe_settings(RuntimeSettings)), *(one for each in settings_of_modules().values() for one in as_listed(each))]
    assert len(wanted) > len(describe_settings(RuntimeSettings)), "no module of this repository was found to have settings"
    assert listed(rows(RUN_ONE, "variable")) == wanted


def test_no_page_names_a_variable_that_nothing_reads() -> None:
    known = {one.variable for one in describe_settings(RuntimeSettings)} | {"MESH_CONTEXT"} | EXAMPLES
    known |= {one.variable for each in settings_of_modules().values() for one in each}
    named = {(page.name, word) for page in PAGES for word in re.findall(r"\bMESH_[A-Z_]*[A-Z]\b", page.read_text())}
    assert not {(page, word) for page, word in named if word not in known}
    assert len(named) > len(known)


# ---------------------------------------------------------------------------------------------------- causes


def causes_listed() -> set[saying.Cause]:
    stages = {str(stage) for stage in Stage}
    found = {("*", kind, code.strip("`")) for code, kind, *_ in rows(CAUSES, "code", under="Stages and causes")}
    for stage in stages & set(headings(CAUSES)):
        found |= {(stage, kind, code.strip("`")) for code, kind, *_ in rows(CAUSES, "code", under=stage)}
    return found


def test_the_guide_has_a_section_for_every_stage_in_order() -> None:
    assert [one for one in headings(CAUSES) if one in set(Stage)] == [str(stage) for stage in Stage]


def test_the_guide_explains_every_cause_that_the_code_can_give_and_no_other() -> None:
    assert causes_listed() == saying.causes()


def test_the_guide_explains_every_cause_of_the_module_database_and_no_other() -> None:
    assert {(kind, code.strip("`")) for code, kind, *_ in rows(CAUSES, "database")} == saying.database_causes()


def test_the_guide_explains_every_refusal_of_an_issuer_and_no_other() -> None:
    told = [code for first, *_ in rows(CAUSES, "refusal") for code in spans(first)]
    assert sorted(told) == sorted(saying.issuer_refusals())


def test_every_cause_and_refusal_says_what_to_do() -> None:
    empty = [row for row in [*rows(CAUSES, "code"), *rows(RUN_ONE, "count")] if not all(row)]
    assert not empty


def test_the_guide_explains_every_refusal_that_the_code_can_give_and_no_other() -> None:
    told = [code for row in rows(CAUSES, "code", under="Refusals of the command `mesh`") if len(row) == 4 for code in spans(row[0])]
    assert sorted(told) == sorted(saying.refusals())


def test_the_guide_explains_every_refusal_of_the_host_and_no_other() -> None:
    told = [code for row in rows(CAUSES, "code", under="Refusals of the command `mesh`") if len(row) == 3 for code in spans(row[0])]
    assert sorted(told) == sorted(saying.host_refusals())


def test_the_guide_explains_why_tells_are_parked() -> None:
    told = [spans(first)[0] for first, _ in rows(CAUSES, "reason begins with")]
    assert sorted(told) == sorted(saying.park_reasons())


def test_the_guide_explains_every_reason_for_which_a_question_has_no_answer() -> None:
    told = [spans(first)[0] for first, _ in rows(GUIDE / "write-a-module.md", "reason")]
    assert told == [str(reason) for reason in Reason]
    (named,) = re.findall(r"a reason for each question: \*([^*]+)\*, or \*open\*", (DOCS / "design" / "messages.md").read_text())
    assert named.split(", ") == [str(reason) for reason in Reason if reason is not Reason.OPEN]


def test_the_guide_explains_every_count_and_every_degradation() -> None:
    assert sorted(spans(first)[0] for first, _ in rows(RUN_ONE, "count")) == sorted(saying.named("count") | saying.named("_drop", 1))
    (degraded,) = re.findall(r"^- `degraded` lists(.*?)^- ", RUN_ONE.read_text(), re.MULTILINE | re.DOTALL)
    assert {one for one in spans(degraded) if one in saying.named("degrade")} == saying.named("degrade")


# ---------------------------------------------------------------------------------------------------- numbers and names


def test_the_table_of_paces_is_that_of_the_code() -> None:
    told = {row[0]: (row[2], row[3]) for row in rows(DOCS / "design" / "starting.md", "stage")}
    assert told == {
        str(stage): (f"{pace.deadline:g} s", f"{pace.first:g} s to {pace.cap:g} s")
        for stage, pace in PACES.items()
        if stage is not Stage.READY
    }


def test_the_exit_codes_of_a_runtime_are_those_of_the_code() -> None:
    told = [int(code) for row in rows(RUN_ONE, "exit", under="The program") for code in row[0].split(", ")]
    ends = [life.EXIT_STOPPED, entrypoint.EXIT_USAGE, entrypoint.EXIT_SOFTWARE, life.EXIT_DEADLINE, entrypoint.EXIT_CONFIG]
    assert told == [*ends, 128 + signal.SIGTERM, 128 + signal.SIGINT]
    (line,) = re.findall(r"Exit codes: (.*)$", (DOCS / "design" / "starting.md").read_text(), re.MULTILINE)
    assert [int(code) for code in re.findall(r"\b(\d+) ", line)] == ends


def test_the_exit_codes_of_the_command_are_those_of_the_code() -> None:
    told = {int(code): words for code, words in rows(RUN_ONE, "exit", under="The command `mesh`")}
    assert told == {code.value: words for code, words in WORDS.items()}


def test_the_table_of_exchanges_is_that_of_the_code() -> None:
    table: dict[str, list[tuple[set[str], str]]] = {}
    exchange = ""
    for first, _, keys, queue in rows(DOCS / "design" / "messages.md", "exchange"):
        exchange = spans(first)[0] if first else exchange
        table.setdefault(exchange, []).append((set(spans(keys)), spans(queue)[0]))
    asks = {wire.ask_key(level, "TYPE") for level in wire.LEVELS if level != "compose"}
    assert table == {
        wire.CONTROL: [
            ({wire.compose_key("MODULE")}, wire.asks_queue("ID", "HEX", "compose")),
            ({wire.declare_key("MACHINE")}, wire.tells_queue("ID")),
        ],
        wire.ASKS: [
            (asks, wire.asks_queue("ID", "HEX", "LEVEL")),
            ({wire.ask_to_key("tool", "ID", "TYPE")}, wire.asks_queue("ID", "HEX", "tool")),
        ],
        wire.TELLS: [
            ({wire.all_key("TYPE"), wire.to_key("ID", "TYPE")}, wire.tells_queue("ID")),
            ({wire.parked_key("ID")}, wire.parked_queue("ID")),
        ],
        wire.REPLIES: [({wire.reply_key("ID", "HEX")}, wire.replies_queue("ID", "HEX"))],
    }
    assert tuple(table) == wire.EXCHANGES


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (DOCS / "design" / "messages.md", f"at most {wire.BODY_LIMIT // 2**20} MiB, headers at most {wire.HEADER_LIMIT // 1024} KiB"),
        (DOCS / "design" / "messages.md", f"(default {wire.DEFAULT_BUDGET:g} s)"),
        (GUIDE / "write-a-module.md", f"`TooLarge` ({wire.BODY_LIMIT // 2**20} MiB)"),
        (DOCS / "design" / "starting.md", f"within {life.STOP_WITHIN:g} s or hand it back"),
        (RUN_ONE, f"within {life.STOP_WITHIN:g} s or hands it back"),
    ],
)
def test_a_number_is_that_of_the_code(page: object, said: str) -> None:
    assert said in " ".join(str(page.read_text()).split())  # type: ignore[attr-defined]  # a path
