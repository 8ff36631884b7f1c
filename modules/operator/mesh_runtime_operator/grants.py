"""``mesh grants``, ``rotate``, ``revoke``, ``rekey``: what is granted to whom, and an operator's acts on it.

The controller says who issues grants, and each issuer acts on its own. What several of them must do is done by as many as can; those that
have not are named, and the same command again does the rest.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from mesh_runtime.asking import Asker
from mesh_runtime.contracts import BadName, Identity, Missing, Reason, Refused, Unanswered
from mesh_runtime.contracts.granting import Provider
from mesh_runtime.contracts.operating import Rekey, Rekeyed
from mesh_runtime_operator import showing_grants as showing
from mesh_runtime_operator.acting import Json, Wait, errors, print_outcome, refuse, run
from mesh_runtime_operator.asking import BUDGET, asker_of, unanswered_by_the_controller
from mesh_runtime_operator.context import read_context
from mesh_runtime_operator.exits import Ended, Exit
from mesh_runtime_operator.issuers import Said, act, ask_providers, issuers_of, resource_of
from mesh_runtime_operator.parameters import BadParameter, read_key
from mesh_runtime_operator.showing import as_json as document_of

Who = Annotated[str, typer.Argument(metavar="IDENTITY", help="Who was granted it: MODULE@MACHINE.")]
What = Annotated[str, typer.Argument(metavar="RESOURCE", help="What was granted: database.1/orders, or database/orders.")]
KeyFile = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="The file with the placement's public key: 64 hex digits. It is recorded.")
]


def grants(wait: Wait = 10.0, as_json: Json = False) -> None:
    """Show what is granted to whom, by whom, since when, and whether it is in use. Exit 0 only if every issuer has answered."""
    said = run(_list(wait))
    print_outcome(as_json, showing.document(said), lambda: showing.grants(said))
    missing = [one for one in said if not one.is_done]
    for one in missing:
        errors().print(f"mesh: {showing.why_not(one)}")
    if missing:
        raise typer.Exit(Exit.REFUSED if all(isinstance(one.outcome, Refused) for one in missing) else Exit.UNANSWERED)


def rotate(who: Who, what: What, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Replace the login of one grant: the new one is told, and the old one goes when the new one is in use."""
    _act("rotate", who, what, wait, as_json)


def revoke(who: Who, what: What, wait: Wait = 10.0, as_json: Json = False) -> None:
    """End one grant: its logins go, and it is granted again only after `mesh rekey IDENTITY`."""
    _act("revoke", who, what, wait, as_json)


def rekey(who: Who, key: KeyFile = None, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Forget the key of a placement, at the controller and at every issuer: its next ask is granted a new login, sealed to its new key."""
    identity = _identity(who)
    try:
        recorded = "" if key is None else read_key(key)
    except BadParameter as bad:
        raise Ended(Exit.USAGE, str(bad)) from None
    rekeyed, said = run(_rekey(identity, recorded, wait))
    if isinstance(rekeyed, Refused):
        refuse(as_json, str(identity), rekeyed)
    if isinstance(said, Unanswered):
        words = f"the controller has rekeyed {identity}, and who issues grants is unanswered: {said}; run it again"
        raise Ended(Exit.PARTLY, words)
    print_outcome(as_json, showing.rekeyed_document(identity, rekeyed, said), lambda: showing.rekeyed(identity, rekeyed, said))
    missing = [one for one in said if not one.is_done]
    for one in missing:
        errors().print(f"mesh: {identity} is not rekeyed there: {showing.why_not(one)}; run it again")
    if missing:
        raise typer.Exit(Exit.PARTLY)


def _act(deed: Literal["rotate", "revoke"], who: str, what: str, wait: float, as_json: bool) -> None:
    identity = _identity(who)
    resource, said = run(_act_on_one(deed, identity, what, wait))
    whom = f"{identity} {resource}"
    if isinstance(said, Refused):
        refuse(as_json, whom, said)
    for one in said:
        if isinstance(one.outcome, Refused):
            refuse(as_json, whom, one.outcome.model_copy(update={"by": one.issuer}))
        if isinstance(one.outcome, Missing):
            nobody = one.outcome.reason is Reason.NOBODY
            words = "nothing was changed" if nobody else "whether it acted is unknown"
            raise Ended(Exit.NOBODY if nobody else Exit.UNANSWERED, f"{showing.why_not(one)}; {words}")
        outcome = one.outcome
        print_outcome(as_json, document_of(outcome), lambda: showing.acted(whom, outcome))  # noqa: B023 - called before it returns


async def _list(wait: float) -> list[Said]:
    async with asker_of(read_context(), wait) as (asker, address):
        return await act(asker, await _providers(asker, address), "list")


async def _act_on_one(deed: Literal["rotate", "revoke"], who: Identity, what: str, wait: float) -> tuple[str, list[Said] | Refused]:
    async with asker_of(read_context(), wait) as (asker, address):
        providers = await _providers(asker, address)
        resource = resource_of(what, providers)
        issuers = issuers_of(resource, providers)
        return resource, issuers if isinstance(issuers, Refused) else await act(asker, issuers, deed, str(who), resource)


async def _rekey(who: Identity, key: str, wait: float) -> tuple[Rekeyed | Refused, Sequence[Said] | Unanswered]:
    """The controller first: until it has forgotten the key, an issuer would be told it again."""
    async with asker_of(read_context(), wait) as (asker, address):
        try:
            rekeyed = await asker.ask(Rekey(identity=str(who), key=key), budget=BUDGET)
        except Unanswered as unanswered:
            raise unanswered_by_the_controller(unanswered, address) from None
        if isinstance(rekeyed, Refused):
            return rekeyed, ()
        try:
            providers = await ask_providers(asker)
        except Unanswered as unanswered:
            return rekeyed, unanswered
        return rekeyed, await act(asker, providers, "rekey", str(who))


async def _providers(asker: Asker, address: str) -> Sequence[Provider]:
    try:
        return await ask_providers(asker)
    except Unanswered as unanswered:
        raise unanswered_by_the_controller(unanswered, address) from None


def _identity(written: str) -> Identity:
    try:
        return Identity.parse(written)
    except BadName as bad:
        raise Ended(Exit.USAGE, str(bad)) from None
