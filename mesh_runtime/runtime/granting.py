"""How grants hang in a runtime: what its holder and its issuer are told and asked, and their ways to the mesh.

Loaded only for a module that is granted something or provides something: nobody else pays for it.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import structlog

from mesh_runtime.asking import Answer, Asker, Scope
from mesh_runtime.contracts.base import Tell
from mesh_runtime.contracts.granting import (
    GrantAsk,
    GrantConfirmed,
    Granted,
    GrantRevoked,
    GrantRotated,
    GrantTerms,
    Resource,
    TermsOf,
    acts_on,
    ask_for,
    issuer_of,
)
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.outcomes import Absent, Found, Refused
from mesh_runtime.contracts.rights import OPERATOR
from mesh_runtime.grants.held import ASK_WITHIN
from mesh_runtime.grants.holding import Holder
from mesh_runtime.runtime.module import ModuleRuntime
from mesh_runtime.startup import RuntimeState
from mesh_runtime.telling import Teller, Told

if TYPE_CHECKING:
    from mesh_runtime.grants.issuing import Issuer
    from mesh_runtime.grants.providing import Provides

log = structlog.stdlib.get_logger(__name__)


def holder_of(module: ModuleRuntime, key_file: Path | None, asker: Asker, teller: Teller) -> tuple[Holder, list[Told]]:
    """What holds the grants of this module, and what it is told."""

    async def ask(question: GrantAsk) -> Granted | Refused:
        return cast("Granted | Refused", await asker.ask(question, budget=ASK_WITHIN))

    async def confirm(tell: GrantConfirmed, issuer: Identity, message_id: str) -> None:
        await teller.tell(tell, issuer, message_id)

    holder = Holder(module, type(module).granted_methods, module.identity, key_file, ask, confirm)
    where = type(module).__name__
    return holder, [
        Told(GrantRotated, lambda tell, scope: holder.rotated(tell, scope.sender), f"{where}'s grants"),
        Told(GrantRevoked, lambda tell, scope: holder.revoked(tell, scope.sender), f"{where}'s grants"),
    ]


def issuer_for(
    module: ModuleRuntime, resource: type[Resource[Any]], asker: Asker, teller: Teller, state: RuntimeState
) -> "tuple[Issuer, list[Answer], list[Told]]":
    """What issues the grants of this module, what it answers, and what it is told."""
    from mesh_runtime.grants.issuing import Issuer

    async def terms(consumer: str, text: str) -> GrantTerms | None:
        found: Found[GrantTerms] | Absent = await asker.ask(TermsOf(consumer=consumer, resource=text))
        return None if isinstance(found, Absent) else found.value

    async def tell(what: Tell, to: Identity) -> object:
        return await teller.tell(what, to)

    issuer = Issuer(cast("Provides[Any, Any]", module), module.identity, terms, tell, show=state.degrade)
    me, where = str(module.identity), type(module).__name__

    async def named(_: object, __: Scope) -> Found[str]:
        return Found(value=me, revision=0)

    answers = [
        Answer(ask_for(resource), lambda ask, scope: issuer.provide(ask, scope.sender), f"{where}.make"),
        Answer(acts_on(resource), lambda ask, scope: issuer.act(ask, scope.sender), f"{where}'s grants", frozenset({OPERATOR})),
        Answer(issuer_of(resource), named, f"{where}'s issuer"),
    ]
    confirmed: Callable[[Any, Scope], Awaitable[None]] = lambda tell, scope: issuer.confirmed(tell, scope.sender)  # noqa: E731 - as above
    return issuer, answers, [Told(GrantConfirmed, confirmed, f"{where}'s grants")]


async def who_issues(resource: type[Resource[Any]], asker: Asker, within: float) -> str:
    """Who says that it issues this resource, as the broker validated him. Raises Unanswered."""
    found: Found[str] = await asker.ask(issuer_of(resource)(), budget=within)
    return found.by
