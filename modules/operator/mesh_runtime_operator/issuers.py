"""Asks those who issue grants: who they are is asked of the controller, what they know of themselves.

No class of a resource is known here. The tool of a type is made from its name (``database.1`` is acted on by ``database-grants.1``), so
that an outside author's resource is shown and acted on like any other.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import new_class
from typing import Literal

from mesh_runtime.asking import Asker
from mesh_runtime.contracts import Missing, Refused, Unanswered
from mesh_runtime.contracts.granting import GrantAct, GrantsShown, Provider, Providers
from mesh_runtime_operator.asking import BUDGET
from mesh_runtime_operator.exits import Ended, Exit

_TYPE = re.compile(r"([a-z][a-z0-9-]*)\.([1-9][0-9]*)\Z")


@dataclass(frozen=True, slots=True)
class Said:
    """What came of an act at the issuer of one type. ``outcome`` is ``Missing`` where there was no answer: why."""

    issuer: str
    type: str
    outcome: GrantsShown | Refused | Missing

    @property
    def is_done(self) -> bool:
        """Whether it was answered, and not refused."""
        return isinstance(self.outcome, GrantsShown)


@cache
def tool_of(type_name: str) -> type[GrantAct]:
    """The act on grants of resources of this type. Raises ValueError for what is no type's name."""
    found = _TYPE.match(type_name)
    if found is None:
        raise ValueError(f"{type_name!r} is no type of a resource: it must read like database.1")
    keywords = {"name": f"{found[1]}-grants", "major": int(found[2])}
    return new_class(f"GrantActOn{type_name}", (GrantAct,), keywords, lambda space: space.update({"__module__": __name__}))


async def ask_providers(asker: Asker) -> tuple[Provider, ...]:
    """Every provider in the mesh, as the controller knows them. Raises Unanswered."""
    found = await asker.ask(Providers(), budget=BUDGET)
    return tuple(found.value)


async def act(
    asker: Asker,
    providers: Sequence[Provider],
    deed: Literal["list", "rotate", "revoke", "rekey"],
    consumer: str = "",
    resource: str = "",
) -> list[Said]:
    """Ask each of these providers to do it. One that gives no answer keeps none of the others from theirs."""
    types = sorted({one.type for one in providers})
    said = await asyncio.gather(
        *(_act_on(asker, kind, [one.identity for one in providers if one.type == kind], deed, consumer, resource) for kind in types)
    )
    return [one for each in said for one in each]


async def _act_on(
    asker: Asker, kind: str, of: list[str], deed: Literal["list", "rotate", "revoke", "rekey"], consumer: str, resource: str
) -> list[Said]:
    """All of one type are asked together: whoever answers such asks would get each of several."""
    try:
        replies = await asker.ask_each(tool_of(kind)(act=deed, consumer=consumer, resource=resource), of, BUDGET)
    except Unanswered as unanswered:
        return [Said(", ".join(of), kind, unanswered.missing[0])]
    return [Said(who, kind, outcome) for who, outcome in sorted(replies.items())]


def resource_of(written: str, providers: Sequence[Provider]) -> str:
    """A resource's text as it is known to its issuer: ``database/orders`` is ``database.1/orders`` where one major version is provided.

    Raises Ended (usage) if it is written wrongly, or could be several.
    """
    kind, slash, rest = written.partition("/")
    if not slash or not kind or not rest:
        raise Ended(Exit.USAGE, f"{written!r} is no resource: it must read like database.1/orders")
    if _TYPE.match(kind):
        return written
    types = sorted({one.type for one in providers if one.type.partition(".")[0] == kind})
    if len(types) > 1:
        raise Ended(Exit.USAGE, f"{written!r} could be {' or '.join(f'{one}/{rest}' for one in types)}: write which")
    return f"{types[0]}/{rest}" if types else written


def issuers_of(resource: str, providers: Sequence[Provider]) -> list[Provider] | Refused:
    """Who issues this resource, or the refusal that says that nobody does."""
    kind = resource.partition("/")[0]
    found = [one for one in providers if one.type == kind]
    if found:
        return found
    provided = ", ".join(sorted({one.type for one in providers})) or "nothing"
    return Refused(code="not-provided", why=f"no placement provides {kind}; what is provided: {provided}")
