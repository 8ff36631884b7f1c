"""Whether a declaration is taken: what is not exactly right is refused whole, with why, and nothing on the machine is touched.

Nothing of a statement is parsed before its signature was found good. What the host holds and what the statement neither declares nor names
under `removes` refuses it: nothing is ever removed by being left out.

The mesh's id is pinned by the first declaration that is accepted: the controller's key is the root of trust, and it is set by the operator.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from mesh_runtime.contracts import BadName, SignedDeclaration, Statement, check_name
from mesh_runtime.trust import BadSignature, VerifyKey
from mesh_runtime_host.rendering import KNOWS, ORDER, Element, elements_of, read_section
from mesh_runtime_host.store import Floor, Held, Number, number_of


@dataclass(frozen=True, slots=True)
class Layout:
    """Where this host applies, and what no declaration may claim: its own state and its key."""

    root: Path
    closed: tuple[Path, ...]


class Refusal(Exception):
    """A declaration is refused: a stable code, words, and the number it has, (0, 0) if that could not be believed or read."""

    def __init__(self, code: str, words: str, number: Number = (0, 0)) -> None:
        super().__init__(f"{code}: {words}")
        self.code = code
        self.number = number


class Repeated(Exception):
    """This very declaration was accepted before: it came twice, and nothing is to be done."""


def believed(signed: SignedDeclaration, key: VerifyKey) -> Statement:
    """The statement, if the controller signed these bytes and they can be read; raises Refusal."""
    try:
        key.verify(signed.statement.encode("utf-8", "surrogatepass"), signed.signature)
    except BadSignature as forged:
        raise Refusal("not-signed", str(forged)) from forged
    try:
        return Statement.model_validate_json(signed.statement)
    except ValidationError as malformed:
        raise Refusal("malformed", f"the statement cannot be read: {_first(malformed)}") from malformed


def check_addressee(statement: Statement, machine: str, floor: Floor) -> None:
    """Raise Refusal, without its number, unless it is for this machine of this mesh: the number of another's is one of ours, too."""
    if statement.machine != machine:
        raise Refusal("other-machine", f"it is for {statement.machine!r}, this is {machine!r}")
    if floor.mesh and statement.mesh != floor.mesh:
        raise Refusal("other-mesh", f"it is of the mesh {statement.mesh!r}, this machine is of {floor.mesh!r}")


def check_newer(statement: Statement, floor: Floor, same: bool) -> None:
    """Raise Repeated, or Refusal unless it is greater than all that was accepted. To be called at the moment of writing, under the lock."""
    if number_of(statement) == floor.number and same:
        raise Repeated
    if number_of(statement) <= floor.number:
        words = f"{_named(number_of(statement))} is not above {_named(floor.number)}, which is accepted"
        raise Refusal("stale", words, number_of(statement))


def elements_declared(statement: Statement, layout: Layout) -> tuple[Element, ...]:
    """All that it declares, in the order of applying; raises Refusal for what this host does not know or may not do."""
    number = number_of(statement)
    elements: list[Element] = []
    seen: set[tuple[str, str]] = set()
    for declared in statement.sections:
        where = f"section {declared.section} of {declared.module}"
        if (declared.module, declared.section) in seen:
            raise Refusal("malformed", f"{where} stands there twice", number)
        seen.add((declared.module, declared.section))
        try:
            check_name("a section's module", declared.module)
            elements += elements_of(declared.module, read_section(declared))
        except KeyError:
            raise Refusal("unknown-section", f"{where}: this host knows {', '.join(KNOWS)}", number) from None
        except ValidationError as wrong:
            raise Refusal("malformed", f"{where}: {_first(wrong)}", number) from wrong
        except (BadName, ValueError) as wrong:
            raise Refusal("malformed", f"{where}: {wrong}", number) from wrong
    elements.sort(key=lambda one: ORDER.index(one.section))
    _check_claims(elements, number)
    for element in elements:
        _check_place(element, layout, number)
    return tuple(elements)


def check_removals(statement: Statement, elements: Collection[Element], held: Collection[str]) -> None:
    """Raise Refusal if something held is neither declared nor named, or something is both."""
    declared = {one.name for one in elements}
    named = {one.element for one in statement.removes}
    if both := sorted(declared & named):
        raise Refusal("contradiction", f"declared and to be removed at once: {', '.join(both)}", number_of(statement))
    if left_out := sorted(set(held) - declared - named):
        words = f"held here, neither declared nor named for removal: {', '.join(left_out)}"
        raise Refusal("unnamed-removal", words, number_of(statement))


def inherited(element: Element, held: dict[str, Held], named: Collection[str]) -> Held | None:
    """What is ours at an element's place: itself, or one of the same path that is named for removal (it moved to another module)."""
    own = held.get(element.name)
    if own is not None:
        return own
    return next((one for name, one in held.items() if name in named and one.path == element.path), None)


def _check_claims(elements: Collection[Element], number: Number) -> None:
    """No two elements of one path, and none that needs another one to be a directory."""
    by_path: dict[str, Element] = {}
    for element in elements:
        other = by_path.setdefault(element.path, element)
        if other is not element:
            raise Refusal("claimed-twice", f"{element.path} is claimed by {other.name} and by {element.name}", number)
    for element in elements:
        for parent in Path(element.path).parents:
            if (above := by_path.get(str(parent))) is not None:
                words = f"{above.name} claims {above.path} as a file, {element.name} as a directory"
                raise Refusal("claimed-twice", words, number)


def _check_place(element: Element, layout: Layout, number: Number) -> None:
    place = layout.root.resolve() / element.path.lstrip("/")
    for closed in (one.resolve() for one in layout.closed):
        if place == closed or closed in place.parents or place in closed.parents:
            raise Refusal("closed-path", f"{element.name}: {element.path} is the host's own state or key", number)


def _named(number: Number) -> str:
    return f"generation {number[1]} of epoch {number[0]}"


def _first(wrong: ValidationError) -> str:
    first = wrong.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"
