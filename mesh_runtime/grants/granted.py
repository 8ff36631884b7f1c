"""``@granted``: what a module is granted, as an attribute of its object.

The method says how an access is entered (a pool opened, a login tried) and yields once what the rest of the module uses. Who asks for the
grant, opens it, enters it beside the one in force, and leaves the old one is ``holding``; here stands what the author writes, what is
refused when the class is made, and the one promise that handlers rest on: **a handler that has begun with a value ends with it**.

Within a handler the first read takes hold of the grant in force until that handler has ended, and every further read of it gives the same,
also from tasks and threads that run on its behalf. Outside of a handler (``keep``, a thread of the author's own making) a read gives the
grant in force now and holds nothing: read again instead of keeping it.
"""

import inspect
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, Never, NoReturn, Protocol, Self, TypeVar, overload

from mesh_runtime.asking.scope import current_scope
from mesh_runtime.contracts.base import ContractError
from mesh_runtime.contracts.granting import A, Resource

T = TypeVar("T")


class NotGranted(RuntimeError):
    """What is read was not granted yet, or is granted no more."""


class InForce(Protocol):
    """One grant that was entered."""

    value: Any

    def taken(self) -> None:
        """A handler takes hold of it."""

    def let_go(self) -> None:
        """That handler has ended."""


class Slot:
    """The place of one granted attribute in one module's object. It may be read from any thread."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._now: InForce | None = None
        self._why = "it is not granted yet"
        self._turn = threading.Lock()

    def read(self) -> Any:
        """The value for whoever reads it here. Raises NotGranted."""
        scope = current_scope()
        return (self._in_force() if scope is None else scope.kept(self, self._take)).value

    def put(self, grant: InForce | None, why: str = "") -> None:
        """Whoever reads it first from now on gets this one; nothing, and ``why``, if it is granted no more."""
        with self._turn:
            self._now, self._why = grant, why

    def _in_force(self) -> InForce:
        now = self._now
        if now is None:
            raise NotGranted(f"{self._what} cannot be read: {self._why}")
        return now

    def _take(self) -> tuple[InForce, Callable[[], None]]:
        with self._turn:
            now = self._in_force()
            now.taken()
            return now, now.let_go


class GrantedMethod(Generic[T]):
    """What ``@granted`` makes of a method: on the class itself, on an object what its generator yielded."""

    def __init__(self, resource: Resource[Any], method: Callable[[Any, Any], AsyncIterator[T]]) -> None:
        self.__mesh_granted__ = resource
        self.resource = resource
        self.method = method
        self.name = method.__name__
        self.__doc__ = method.__doc__
        self.__qualname__ = method.__qualname__
        self.__wrapped__ = method

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def slot(self, instance: object) -> Slot:
        """Where the value of this attribute of this object stands."""
        found = vars(instance).get(f"_granted_{self.name}")
        if not isinstance(found, Slot):
            what = f"{type(instance).__name__}.{self.name} ({self.resource.text})"
            found = vars(instance).setdefault(f"_granted_{self.name}", Slot(what))
        return found

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else self.slot(instance).read()

    def __set__(self, instance: object, value: Never) -> NoReturn:
        raise AttributeError(f"{type(instance).__name__}.{self.name} is what was granted: it cannot be set")


def granted(resource: Resource[A]) -> Callable[[Callable[[Any, A], AsyncIterator[T]]], GrantedMethod[T]]:
    """The module must be granted ``resource``; the method enters an access to it and yields once what ``self.NAME`` then is.

        @granted(Database(name="orders"))
        async def pool(self, access: DatabaseAccess) -> AsyncIterator[AsyncConnectionPool]:
            async with AsyncConnectionPool(kwargs=access.fields()) as pool:
                await pool.wait()
                yield pool

    What stands before the ``yield`` is the trial: if it raises, that is shown, and it is entered again. What stands behind it leaves. Both
    run in one task of their own. Raises ContractError for anything else than such a method.
    """
    if not isinstance(resource, Resource):
        raise ContractError(f"@granted({resource!r}): give it a resource, as `@granted(Database(name=...))`")
    access = type(resource).access_type()

    def mark(method: Callable[[Any, A], AsyncIterator[T]]) -> GrantedMethod[T]:
        where = getattr(method, "__qualname__", repr(method))
        if not inspect.isasyncgenfunction(method):
            raise ContractError(f"{where} is no async generator: write `async def` with one `yield` of what the module uses")
        parameters = list(inspect.signature(method).parameters.values())
        if len(parameters) != 2:
            raise ContractError(f"{where} must take exactly self and the access, annotated with {access.__name__}")
        _check_annotation(where, method, parameters[1], access)
        return GrantedMethod(resource, method)

    return mark


def _check_annotation(where: str, method: Callable[..., Any], parameter: inspect.Parameter, access: type) -> None:
    given = parameter.annotation
    if isinstance(given, str):
        # A text, under `from __future__ import annotations`; what it names may be local, or imported for types only.
        given = method.__globals__.get(given, access if given.rpartition(".")[2] == access.__name__ else given)
    if given is parameter.empty:
        raise ContractError(f"{where}: annotate {parameter.name!r} with {access.__name__}, the access to what it is granted")
    if given is not access:
        named = given.__name__ if isinstance(given, type) else repr(given)
        raise ContractError(
            f"{where}: {parameter.name!r} is annotated with {named}, but the access to what it is granted is {access.__name__}"
        )
