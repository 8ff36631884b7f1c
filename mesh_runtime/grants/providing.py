"""``Provides``: what the author of a provisioner writes. The ledger, the secrets, sealing, rotation and revocation are the library's."""

import inspect
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, get_args, get_origin

from pydantic import SecretStr

from mesh_runtime.contracts.base import ContractError
from mesh_runtime.contracts.granting import Access, Resource

if TYPE_CHECKING:
    from mesh_runtime.grants.ledger import Ledger

R = TypeVar("R", bound=Resource[Any])
A = TypeVar("A", bound=Access)


class Claim(NamedTuple, Generic[R]):
    """What is to be made: ``login`` with ``secret`` for ``consumer`` (``module@machine``), which may use ``resource``.

    ``owner`` is the module to which the resource's data belongs. Login and secret are drawn by the library and recorded before; another
    ``sequence`` has another login and another secret.
    """

    resource: R
    consumer: str
    owner: str
    login: str
    secret: SecretStr
    sequence: int


class Provides(Generic[R, A]):
    """Mix it into a ``ModuleRuntime``: ``class PostgreSQL(ModuleRuntime, Provides[Database, DatabaseAccess])``.

    ``ledger`` must be written, and ``make``, ``check``, ``retire`` and ``logins``, each ``async def``. What they raise is told to the
    consumer, shown, and tried again; raise ``blocked(...)`` or ``waiting(...)`` of ``mesh_runtime.startup`` to say which of the two it is.
    Calls of ``make``, ``check`` and ``retire`` for one resource never overlap; for two resources they may.
    """

    provided: ClassVar[type[Resource[Any]]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        resource, access = _provided_by(cls)
        if resource.access_type() is not access:
            wants = resource.access_type().__name__
            raise ContractError(f"{cls.__name__} provides {resource.__name__} with {access.__name__}, but the access to it is {wants}")
        module = getattr(cls, "module", "")
        if module and resource.provided_by != module:
            words = f"{resource.__name__} is provided by the module {resource.provided_by!r} alone, this is {module!r}"
            raise ContractError(f"{cls.__name__}: {words}")
        missing = [name for name in ("make", "check", "retire", "logins") if getattr(cls, name) is getattr(Provides, name)]
        if missing:
            raise ContractError(f"{cls.__name__} provides {resource.__name__} and has no {', '.join(missing)}: write each as `async def`")
        plain = [name for name in ("make", "check", "retire", "logins") if not inspect.iscoroutinefunction(getattr(cls, name))]
        if plain:
            raise ContractError(f"{cls.__name__}.{plain[0]} must be `async def`: what may block in it belongs into asyncio.to_thread")
        if cls.ledger is Provides.ledger:
            raise ContractError(f"{cls.__name__} provides {resource.__name__} and has no ledger: write `def ledger(self) -> Ledger`")
        cls.provided = resource

    def ledger(self) -> "Ledger":
        """Where its records are kept: where the effect lives. Called once ``prepare`` has passed."""
        raise NotImplementedError(f"{type(self).__name__} has no ledger")

    async def make(self, claim: Claim[R]) -> A:
        """Make the login able to use the resource; returns the access with ``claim.secret`` in it.

        Repeatable: the resource, and whatever stands beside the login, may be there already, whole or half. It takes over nothing that is
        not its own.
        """
        raise NotImplementedError

    async def check(self, access: A) -> None:
        """Use it as the consumer would, over a connection of its own. If it raises, nothing is granted."""
        raise NotImplementedError

    async def retire(self, login: str) -> None:
        """Return once ``login`` can no longer log in and nothing that it opened is open; one that is already gone is done."""
        raise NotImplementedError

    async def logins(self) -> Collection[str]:
        """Every login there is now that carries this provisioner's own mark."""
        raise NotImplementedError


def _provided_by(cls: type) -> tuple[type[Resource[Any]], type[Access]]:
    for one in cls.__mro__:
        for base in vars(one).get("__orig_bases__", ()):
            if get_origin(base) is Provides:
                resource, access = get_args(base)
                if (
                    isinstance(resource, type)
                    and issubclass(resource, Resource)
                    and isinstance(access, type)
                    and issubclass(access, Access)
                ):
                    return resource, access
    raise ContractError(f"{cls.__name__}: write the resource and its access, as `Provides[Database, DatabaseAccess]`")
