"""What every message is: a pydantic model with a name and a major version, in any distribution.

A contract says by its class who may say it (``told_by``) or who answers it (``answered_by``), so that receivers can authorise by the
broker-validated login and permissions can be derived. Unknown fields are ignored, so that a newer sender may add some; a field that must be
understood needs a new major version. Sections alone forbid unknown fields.
"""

import re
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

A = TypeVar("A", covariant=True)

_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")


class ContractError(TypeError):
    """A contract is declared wrongly: a mistake in its module's code, found when the class is made."""


def kebab(name: str) -> str:
    """``StoreReachableFrom`` as ``store-reachable-from``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


class Contract(BaseModel):
    """A message. Class keywords: ``name`` (default: the class's name in kebab-case) and ``major`` (default 1)."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore", hide_input_in_errors=True)

    contract: ClassVar[str] = ""
    major: ClassVar[int] = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__()  # the keywords are for __pydantic_init_subclass__, which runs once the fields are known

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        name, major = kwargs.pop("name", ""), kwargs.pop("major", 1)
        super().__pydantic_init_subclass__(**kwargs)
        if "[" in cls.__name__:
            return
        cls.contract = name or kebab(cls.__name__)
        cls.major = major
        if not _NAME.match(cls.contract):
            raise ContractError(f"{cls.__name__}: {cls.contract!r} is no contract name: lower-case letters, digits and '-' only")
        if major < 1:
            raise ContractError(f"{cls.__name__}: the major version is {major}, it begins at 1")

    @classmethod
    def type_name(cls) -> str:
        """``<contract>.<major>``: AMQP's ``type`` of such a message, and the end of its routing key."""
        return f"{cls.contract}.{cls.major}"


class Ask(Contract, Generic[A]):
    """A message whose sender waits. ``A`` is its outcome, a closed union.

    ``level`` orders asks: a handler asks only below its own level, so that asks can form no circle. ``answered_by`` names the module
    that alone may answer. One that is ``addressed`` is asked of one identity, which its key names; the library alone has such.
    """

    level: ClassVar[str] = ""
    answered_by: ClassVar[str] = ""
    addressed: ClassVar[bool] = False

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        cls.answered_by = kwargs.pop("answered_by", cls.answered_by)
        super().__pydantic_init_subclass__(**kwargs)

    @classmethod
    def outcome_type(cls) -> Any:
        """The annotation of the outcome, as written between the brackets of the base class."""
        for base in cls.__mro__:
            metadata = getattr(base, "__pydantic_generic_metadata__", None)
            if metadata and metadata["args"]:
                return metadata["args"][0]
        raise ContractError(f"{cls.__name__} does not say its outcome: write `class {cls.__name__}(Lookup[Found[...]])`")


class Lookup(Ask[A], Generic[A]):
    """An ask about the mesh: ``Lookup[Found[V]]``, or ``Lookup[Found[V] | Absent]`` where it can be absent (a list cannot)."""

    level = "lookup"


class Provision(Ask[A], Generic[A]):
    """An ask for a grant; see ``mesh_runtime.contracts.granting``."""

    level = "provision"


class Tool(Ask[A], Generic[A]):
    """An operator's act, accepted from ``operator@MACHINE`` alone."""

    level = "tool"


class Tell(Contract):
    """A message that must arrive. ``told_by`` names the module that alone may tell it; without it, any runtime may."""

    told_by: ClassVar[str] = ""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        cls.told_by = kwargs.pop("told_by", cls.told_by)
        super().__pydantic_init_subclass__(**kwargs)


class Section(Contract):
    """A typed part of a declaration; unknown fields are refused, since to drop one is to compose less.

    ``section`` is the name under which it stands in a declaration; two classes of one name form a closed union.
    """

    model_config = ConfigDict(defer_build=True, extra="forbid")

    section: ClassVar[str] = ""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        section = kwargs.pop("section", "")
        super().__pydantic_init_subclass__(**kwargs)
        cls.section = section or cls.section or cls.contract
