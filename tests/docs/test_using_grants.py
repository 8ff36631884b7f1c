"""The pages for authors and for whoever looks at a grant that was cut name states, reasons and codes that there are."""

import ast
import re

from rich.console import Console

from mesh_runtime.contracts import Missing, Reason
from mesh_runtime.contracts.granting import GrantRow, GrantsShown
from mesh_runtime_operator import showing_grants
from mesh_runtime_operator.issuers import Said, tool_of
from tests.docs import saying
from tests.docs.pages import GUIDE, ROOT, codes, rows, spans

CUTS = GUIDE / "grants-at-each-cut.md"
USE = GUIDE / "use-grants.md"
CAUSES = GUIDE / "stages-and-causes.md"

#: How the page writes what the code takes from a record.
WRITTEN = {"record.resource": "RESOURCE", "record.consumer": "IDENTITY"}


def shown_reasons() -> set[str]:
    """The names under which an issuer shows why it is degraded."""
    found: set[str] = set()
    for path in sorted((ROOT / "mesh_runtime/grants").glob("*.py")):
        tree = ast.parse(path.read_text())
        functions = {one.name: one.body[-1] for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
        for call in (one for one in ast.walk(tree) if isinstance(one, ast.Call) and ast.unparse(one.func) == "self._show"):
            name: ast.expr | None = call.args[0]
            if isinstance(name, ast.Call):
                ended = functions[ast.unparse(name.func)]
                assert isinstance(ended, ast.Return)
                name = ended.value
            assert name is not None
            found.add(words_of(name))
    return found


def words_of(name: ast.expr) -> str:
    """A text, with what is put into it as the page writes it."""
    if isinstance(name, ast.JoinedStr):
        parts = [one.value if isinstance(one, ast.Constant) else WRITTEN[ast.unparse(one.value)] for one in name.values]  # type: ignore[attr-defined]
        return "".join(map(str, parts))
    return str(ast.literal_eval(name))


def test_every_reason_for_which_an_issuer_is_degraded_is_explained_and_no_other() -> None:
    assert {spans(first)[0] for first, *_ in rows(CUTS, "reason")} == shown_reasons()


def test_the_cut_rotation_is_shown_as_the_command_prints_it() -> None:
    ask = tool_of("database.1")(act="rotate", consumer="orders@beta", resource="database.1/orders")
    assert ask.type_name() == "database-grants.1"
    common = {"consumer": "orders@beta", "resource": "database.1/orders", "issuer": "database@alpha"}
    first = GrantRow(
        **common, state="confirmed", sequence=1, since="2026-11-30T17:02:11.480+00:00", confirmed="2026-11-30T17:02:11.902+00:00"
    )
    second = GrantRow(**common, state="drawn", sequence=2, since="2026-11-30T18:40:07.017+00:00")
    question = "database-grants(act='rotate', consumer='orders@beta', resource='database.1/orders') of database@alpha"
    silent = Missing(question=question, reason=Reason.TIME_OUT, detail="no answer from database@alpha in time")
    console = Console(width=200, soft_wrap=True)
    with console.capture() as captured:
        console.print(showing_grants.grants([Said("database@alpha", "database.1", GrantsShown(rows=(first, second)))]))
    shown = codes(CUTS, "console")[0].text
    why_not = showing_grants.why_not(Said("database@alpha", "database.1", silent))
    assert f"mesh: {why_not}; whether it acted is unknown" in " ".join(shown.split())
    printed = [line.rstrip() for line in captured.get().splitlines()]
    assert shown.partition("$ mesh grants\n")[2].splitlines() == printed


def test_every_state_that_is_named_is_one() -> None:
    known = {"drawn", "issued", "confirmed", "retiring", "revoked", "open"}
    codes_there = {code for _, _, code in saying.causes()} | saying.refusals()
    for first, *cells in rows(CUTS, "cut"):
        seen = [span for span in spans(cells[1]) if re.fullmatch(r"[a-z-]+", span)]
        assert set(seen) - {"detail", "grants"} <= known | codes_there, first


def test_a_newcomer_is_shown_causes_that_there_are() -> None:
    explained = {code for head in ("code", "refusal") for row in rows(CAUSES, head) for code in spans(row[0])}
    told = {code for row in rows(USE, "code") for code in spans(row[0])}
    assert told
    assert told <= explained, told - explained
