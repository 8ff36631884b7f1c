"""Collects from the source which codes the software can give: of causes, of refusals, of parked tells.

It reads the code, not its comments: every call that makes one is found, and a code that is computed must be explained here, so that no
new one comes in unseen.
"""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from mesh_runtime.broker import reaching
from mesh_runtime.startup import Stage
from tests.docs.pages import ROOT

SOURCES = tuple(
    path
    for top in (ROOT / "mesh_runtime", *sorted(ROOT.glob("modules/*/mesh_runtime_*")))
    for path in sorted(top.rglob("*.py"))
    if "testing" not in path.relative_to(ROOT).parts
)

_CODE = re.compile(r"[a-z]{2,}(-[a-z]+)*\Z")

NAME = "NAME"
"""In place of a code that is an exception's class name."""

REFUSAL = "REFUSAL"
"""In place of a code with which an issuer refuses."""

Cause = tuple[str, str, str]
"""Stage (or ``*`` for every stage), kind, code."""


@cache
def parsed(path: Path) -> ast.Module:
    """A source, parsed once."""
    return ast.parse(path.read_text())


def _words(path: Path) -> set[str]:
    """The constants of a source that look like codes."""
    return {
        one.value.partition(": ")[0]
        for one in ast.walk(parsed(path))
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and _CODE.match(one.value.partition(": ")[0])
    }


def _calls(name: str) -> Iterator[tuple[Path, ast.Call]]:
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.IfExp) and name in _names(node.func):
                yield path, node


def _names(function: ast.expr) -> set[str]:
    """``waiting``, or both of ``(blocked if ... else waiting)``."""
    choices = [function.body, function.orelse] if isinstance(function, ast.IfExp) else [function]
    return {ast.unparse(one) for one in choices}


ISSUING = ROOT / "mesh_runtime/grants"
DATABASE = frozenset((ROOT / "modules/database").rglob("*.py"))
RESOLVING = ROOT / "mesh_runtime/broker/resolving.py"
REACHING = ROOT / "mesh_runtime/broker/reaching.py"

#: Codes that are computed: file and expression, to what it can be.
COMPUTED: dict[tuple[str, str], Callable[[], set[str]]] = {
    ("mesh_runtime/broker/resolving.py", "code"): lambda: _words(RESOLVING),  # it has no other words
    ("mesh_runtime/broker/reaching.py", "code"): lambda: {*reaching._CODES.values(), "silent", "unreachable"},
    ("mesh_runtime/broker/securing.py", "found.code"): lambda: set(),  # of a TrustFault, which is collected where it is made
    ("mesh_runtime/runtime/climbing.py", "type(error).__name__"): lambda: {NAME},
    ("mesh_runtime/grants/held.py", "type(error).__name__"): lambda: {NAME},
    ("mesh_runtime/grants/held.py", "outcome.code"): lambda: {REFUSAL},
    ("mesh_runtime/grants/holding.py", "code"): lambda: {"several"},  # or the one that all faults have, which is collected where it is made
    # An issuer's failures: collected where each is made; what `trying` is given, where it is called; a stage's fault keeps its own code.
    ("mesh_runtime/grants/trying.py", "self.code"): lambda: set(),
    ("mesh_runtime/grants/trying.py", "code"): lambda: set(),
    ("mesh_runtime/grants/trying.py", "error.cause.code"): lambda: set(),
    ("mesh_runtime/grants/making.py", "failed.code"): lambda: set(),
    ("mesh_runtime/grants/retiring.py", "failed.code"): lambda: set(),
    ("mesh_runtime/compose.py", "code"): lambda: {"unanswered", "time-out"},
    ("modules/controller/mesh_runtime_controller/composing.py", "codes.pop()"): lambda: set(),  # of a module's own refusal
}


class NotExplained(AssertionError):
    """A code is computed in a way that nobody has explained in ``COMPUTED``."""


def values(path: Path, code: ast.expr) -> set[str]:
    """What an expression for a code can be. Raises NotExplained."""
    file = str(path.relative_to(ROOT))
    match code:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp(body=yes, orelse=no):
            return values(path, yes) | values(path, no)
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), ast.FormattedValue()]):
            return {f"{text}CODE"}
    explained = COMPUTED.get((file, ast.unparse(code)))
    if explained is None:
        raise NotExplained(f"{file}:{code.lineno}: a code is computed by {ast.unparse(code)}: explain it in tests/docs/saying.py")
    return explained()


def _stage(argument: ast.expr) -> str:
    written = ast.unparse(argument)
    return str(Stage[written.removeprefix("Stage.")]) if written.startswith("Stage.") else "*"


def causes() -> set[Cause]:
    """Every cause that the code can give, those of the module ``database`` aside."""
    found: set[Cause] = set()
    for kind in ("waiting", "blocked"):
        for path, call in _calls(kind):
            if path not in DATABASE:
                found |= {(_stage(call.args[0]), kind, code) for code in values(path, call.args[1])}
    for path, call in _calls("TrustFault"):
        (blocked,) = [one.value for one in call.keywords if one.arg == "blocked"]
        kind = "blocked" if ast.literal_eval(blocked) else "waiting"
        found |= {("trust", kind, code) for code in values(path, call.args[0])}
    return found


def database_causes() -> set[tuple[str, str]]:
    """Kind and code of every cause that the module ``database`` gives of itself: at ``prepare``, and through its refusals."""
    return {
        (kind, code)
        for kind in ("waiting", "blocked")
        for path, call in _calls(kind)
        if path in DATABASE
        for code in values(path, call.args[1])
    }


def refusals() -> set[str]:
    """Every code of a ``Refused`` that the library or a module of this repository makes, issuers aside."""
    return {code for path, code in _refused() if path.parent != ISSUING}


def issuer_refusals() -> set[str]:
    """Every code with which an issuer refuses, or fails, that is not its author's own."""
    found = {code for path, code in _refused() if path.parent == ISSUING}
    found |= {code for path, call in _calls("Failed") if path.parent == ISSUING for code in values(path, call.args[0])}
    return found | {code for path, call in _calls("trying") for code in values(path, call.args[1])}


def _refused() -> Iterator[tuple[Path, str]]:
    for path, call in _calls("Refused"):
        for keyword in call.keywords:
            if keyword.arg == "code":
                yield from ((path, code) for code in values(path, keyword.value))


def _begins(node: ast.expr) -> Iterator[str]:
    """The word before the first colon of a text."""
    if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
        yield str(node.values[0].value).partition(":")[0]


def host_refusals() -> set[str]:
    """Every code with which the host refuses a declaration."""
    found = {code for path, call in _calls("Refusal") for code in values(path, call.args[0])}
    host = parsed(ROOT / "modules/host/mesh_runtime_host/host.py")
    for node in ast.walk(host):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "_tell_refused":
            found |= set(_begins(node.args[1]))
    return found


def park_reasons() -> set[str]:
    """The word with which each reason begins for which a tell is parked."""
    found = {word for _, call in _calls("_Hopeless") for word in _begins(call.args[0])}
    for node in ast.walk(parsed(ROOT / "mesh_runtime/telling/listening.py")):
        if isinstance(node, ast.FunctionDef) and node.name == "_raised":
            found |= {word for one in ast.walk(node) if isinstance(one, ast.Return) and one.value for word in _begins(one.value)}
    return found


def named(method: str, place: int = 0) -> set[str]:
    """The argument at ``place``, where it is a plain word, of every call of ``something.method(...)``."""
    return {
        word
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method and len(node.args) > place
        for word in _plain(node.args[place])
    }


def _plain(node: ast.expr) -> Iterator[str]:
    """The text, if it is one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
