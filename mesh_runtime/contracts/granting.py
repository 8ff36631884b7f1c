"""Grants as they travel: what can be granted, how it is asked for, answered, confirmed, rotated, revoked, and shown to operators.

A resource is asked for by ``provision.<its type>``; the answer is sealed to the consumer's key, so that neither the broker nor anybody who
may read a queue learns a secret. Consumers are named by the login that the broker validated, never by a field of a message.
"""

import json
from functools import cache
from types import new_class
from typing import Any, ClassVar, Generic, Literal, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, SecretBytes, SecretStr

from mesh_runtime.contracts.base import Contract, ContractError, Lookup, Provision, Tell, Tool
from mesh_runtime.contracts.outcomes import Absent, Found, Outcome, Refused


class Access(BaseModel):
    """What a consumer needs to use what it was granted: where, as whom, and the secret (a ``SecretStr``)."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", hide_input_in_errors=True)

    def fields(self) -> dict[str, Any]:
        """Its fields by name, secrets revealed: to hand to a client's ``connect``, never to log."""
        return {name: _revealed(value) for name, value in self}

    def revealed(self) -> bytes:
        """Itself as JSON with its secrets in clear: what is sealed, and written nowhere else."""
        return json.dumps(self.model_dump(mode="python"), default=_revealed, ensure_ascii=True).encode()


def _revealed(value: object) -> object:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return value.get_secret_value().decode() if isinstance(value, SecretBytes) else value


A = TypeVar("A", bound=Access, covariant=True)


class Resource(Contract, Generic[A]):
    """What can be granted; ``A`` is the access to it. Its fields say which one, and are scalars.

    Class keyword ``provided_by``: the module that alone provides it. Unknown fields are refused, since they would make two resources one.
    """

    model_config = ConfigDict(defer_build=True, extra="forbid")

    provided_by: ClassVar[str] = ""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        cls.provided_by = kwargs.pop("provided_by", cls.provided_by)
        super().__pydantic_init_subclass__(**kwargs)
        if "[" in cls.__name__:
            return
        if not cls.provided_by:
            raise ContractError(
                f"{cls.__name__} does not say who provides it: write `class {cls.__name__}(Resource[...], provided_by=MODULE)`"
            )
        wrong = [name for name, field in cls.model_fields.items() if field.annotation not in (str, int, bool)]
        if wrong:
            raise ContractError(f"{cls.__name__}.{wrong[0]} must be a str, an int or a bool: a resource is named by scalars")

    @classmethod
    def access_type(cls) -> type[Access]:
        """The class of its access, as written between the brackets of the base class. Raises ContractError."""
        for base in cls.__mro__:
            metadata = getattr(base, "__pydantic_generic_metadata__", None)
            for one in (metadata or {}).get("args", ()):
                if isinstance(one, type) and issubclass(one, Access):
                    return one
        raise ContractError(f"{cls.__name__} does not say its access: write `class {cls.__name__}(Resource[SomeAccess], ...)`")

    @property
    def text(self) -> str:
        """``database.1/orders``: its type and the values of its fields in order; no two resources have the same."""
        values = (getattr(self, name) for name in type(self).model_fields)
        return "/".join([self.type_name(), *(quote(one if isinstance(one, str) else json.dumps(one), safe="") for one in values)])


class Granted(Outcome):
    """The grant, sealed to ``key`` for this consumer, resource, issuer (``by``) and ``sequence``."""

    outcome: Literal["granted"] = "granted"
    sequence: int
    key: str
    sealed: str
    by: str = ""


class GrantAsk(Provision[Granted | Refused]):
    """Asks for one's own grant; ``key`` is the public key to seal to. Each resource has a class of its own: ``ask_for``."""

    resource: Any
    key: str


class GrantConfirmed(Tell):
    """Told to the issuer by the consumer: it uses this sequence number, and no handler of its uses an older one."""

    resource: str
    sequence: int


class GrantRotated(Tell):
    """Told to the consumer by the issuer: a new grant of what it holds, as in ``Granted``."""

    resource: str
    sequence: int
    key: str
    sealed: str


class GrantRevoked(Tell):
    """Told to the consumer by the issuer: its grant has ended, and why. What was issued above ``sequence`` is not meant."""

    resource: str
    sequence: int
    why: str


#: In this order. ``drawn``: recorded, perhaps made. ``issued``: made and tried. ``confirmed``: in use. ``retiring``: to end, may work yet.
LoginState = Literal["drawn", "issued", "confirmed", "retiring"]


class GrantRow(BaseModel):
    """One login of one grant, or a grant without any (``sequence`` 0), as an operator sees it. Times are UTC, ISO 8601."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    consumer: str
    resource: str
    issuer: str
    state: LoginState | Literal["revoked", "open"]
    sequence: int = 0
    login: str = ""
    since: str = ""
    confirmed: str = ""
    detail: str = ""


class GrantsShown(Outcome):
    """``rows`` are all grants of this issuer (after ``list``), or those that the act concerned. ``orphans`` are logins that it made, and
    that its ledger does not know."""

    outcome: Literal["grants-shown"] = "grants-shown"
    rows: tuple[GrantRow, ...]
    orphans: tuple[str, ...] = ()
    done: str = ""


class GrantAct(Tool[GrantsShown | Refused]):
    """An operator's act on the grants of one type of resource. Each resource has a class of its own: ``acts_on``.

    ``consumer`` and ``resource`` (its text) name the grant; ``list`` needs neither, ``rekey`` the consumer alone.
    """

    act: Literal["list", "rotate", "revoke", "rekey"]
    consumer: str = ""
    resource: str = ""


@cache
def ask_for(resource: type[Resource[Any]]) -> type[GrantAsk]:
    """The ask for a resource of this class: ``provision.<its type>``."""
    keywords = {"name": resource.contract, "major": resource.major, "answered_by": resource.provided_by}
    body = {"__annotations__": {"resource": resource}, "__module__": resource.__module__, "__doc__": f"Asks for a {resource.__name__}."}
    return new_class(f"Ask{resource.__name__}", (GrantAsk,), keywords, lambda space: space.update(body))


@cache
def acts_on(resource: type[Resource[Any]]) -> type[GrantAct]:
    """The operator's act on grants of this class: ``tool.<its contract>-grants.<its major>``."""
    keywords = {"name": f"{resource.contract}-grants", "major": resource.major, "answered_by": resource.provided_by}
    body = {"__module__": resource.__module__, "__doc__": f"Acts on grants of {resource.__name__}."}
    return new_class(f"{resource.__name__}Grants", (GrantAct,), keywords, lambda space: space.update(body))


class IssuerOf(Lookup[Found[str]]):
    """Who issues a type of resource now: an identity, which its issuer says itself. Each resource has a class of its own: ``issuer_of``."""


@cache
def issuer_of(resource: type[Resource[Any]]) -> type[IssuerOf]:
    """The question who issues resources of this class: ``lookup.<its contract>-issuer.<its major>``."""
    keywords = {"name": f"{resource.contract}-issuer", "major": resource.major, "answered_by": resource.provided_by}
    body = {"__module__": resource.__module__, "__doc__": f"Who issues {resource.__name__} now."}
    return new_class(f"IssuerOf{resource.__name__}", (IssuerOf,), keywords, lambda space: space.update(body))


class GrantTerms(BaseModel):
    """What the mesh says of a consumer. ``key`` is the public key recorded for its placement; empty: the next that it presents."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    key: str = ""


class TermsOf(Lookup[Found[GrantTerms] | Absent], answered_by="controller"):
    """Whether ``consumer`` is placed and its module needs ``resource`` (its text). Absent: it is not placed, or does not need it."""

    consumer: str
    resource: str


class Provider(BaseModel):
    """Who provides what: an identity and the type of its resource (``database.1``)."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    identity: str
    type: str = Field(description="the resource's type name")


class Providers(Lookup[Found[tuple[Provider, ...]]], answered_by="controller"):
    """All placed provisioners. A list: whole or unanswered."""
