"""What an author writes on methods, and what is refused when the class is loaded.

A mistake in a module's class is found when the class is made, with its name and what would be right, not when the first message comes.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import PydanticUserError

from mesh_runtime.asking.outcome import reader_of
from mesh_runtime.contracts.base import Ask, ContractError, Tell
from mesh_runtime.contracts.composing import Compose

if TYPE_CHECKING:
    from mesh_runtime.contracts.granting import Resource
    from mesh_runtime.grants.granted import GrantedMethod

F = TypeVar("F", bound=Callable[..., Any])

_ANSWERS = "__mesh_answers__"
_TOLD = "__mesh_told__"
_GRANTED = "__mesh_granted__"

#: Where the contracts of grants stand: their tells are handled by the library.
_GRANTING = "mesh_runtime.contracts.granting"


def answers(ask: Any) -> Callable[[F], F]:
    """The method answers asks of this contract. It takes the ask and returns its outcome; a plain ``def`` runs in a thread of its own."""
    if not (isinstance(ask, type) and issubclass(ask, Ask)) or issubclass(ask, Compose) or not ask.level:
        raise ContractError(f"@answers({ask!r}): give it the class of a Lookup, Provision or Tool")
    ask.outcome_type()

    def mark(method: F) -> F:
        setattr(method, _ANSWERS, ask)
        return method

    return mark


def told(tell: Any) -> Callable[[F], F]:
    """The method handles tells of this contract. Its return acknowledges the tell; a plain ``def`` runs in a thread of its own."""
    if not (isinstance(tell, type) and issubclass(tell, Tell)):
        raise ContractError(f"@told({tell!r}): give it the class of a Tell")

    def mark(method: F) -> F:
        setattr(method, _TOLD, tell)
        return method

    return mark


def _marked(cls: type, mark: str) -> Iterator[tuple[str, Any]]:
    for name in sorted({name for one in cls.__mro__ for name in vars(one)}):
        contract = getattr(getattr(cls, name, None), mark, None)
        if contract is not None:
            yield name, contract


def answered_by(cls: type, module: str) -> dict[str, type[Ask[Any]]]:
    """Method name to the ask that it answers; raises ``ContractError`` where the class contradicts itself or a contract."""
    found: dict[str, type[Ask[Any]]] = {}
    for name, ask in _marked(cls, _ANSWERS):
        where = f"{cls.__name__}.{name}"
        if ask in found.values():
            raise ContractError(f"{where}: {ask.__name__} is answered by two methods of {cls.__name__}")
        if ask.answered_by and ask.answered_by != module:
            raise ContractError(f"{where}: {ask.__name__} is answered by the module {ask.answered_by!r} alone, this is {module!r}")
        _check_parameters(where, getattr(cls, name), ask.__name__)
        try:
            reader_of(ask)
        except PydanticUserError as unreadable:
            raise ContractError(f"{where}: the outcome of {ask.__name__} cannot be read: {unreadable.message}") from unreadable
        found[name] = ask
    return found


def told_to(cls: type) -> dict[str, type[Tell]]:
    """Method name to the tell that it handles; raises ``ContractError`` where the class contradicts itself."""
    found: dict[str, type[Tell]] = {}
    for name, tell in _marked(cls, _TOLD):
        where = f"{cls.__name__}.{name}"
        if tell.__module__ == _GRANTING:
            raise ContractError(f"{where}: {tell.__name__} is handled by the library: write `@granted` or `Provides` instead")
        if tell in found.values():
            raise ContractError(f"{where}: {tell.__name__} is handled by two methods of {cls.__name__}")
        _check_parameters(where, getattr(cls, name), tell.__name__)
        found[name] = tell
    return found


def granted_to(cls: type, module: str) -> "dict[str, GrantedMethod[Any]]":
    """Method name to what it is granted; raises ``ContractError`` where the class contradicts itself.

    Nothing of ``grants`` is imported for a module that is granted nothing.
    """
    found: dict[str, GrantedMethod[Any]] = {}
    for name, resource in _marked(cls, _GRANTED):
        where = f"{cls.__name__}.{name}"
        other = next((one for one, method in found.items() if method.resource.text == resource.text), "")
        if other:
            raise ContractError(f"{where}: {resource.text} is granted to {cls.__name__}.{other} already: one method enters it")
        if resource.provided_by == module:
            raise ContractError(f"{where}: {resource.text} is provided by the module {module!r} itself: it cannot wait for its own grant")
        found[name] = getattr(cls, name)
    return found


def provided_by(cls: type) -> "type[Resource[Any]] | None":
    """The resource that a module of this class grants to others, if it is a provisioner (``Provides``)."""
    return getattr(cls, "provided", None)


def _check_parameters(where: str, method: Callable[..., Awaitable[Any]], contract: str) -> None:
    parameters = list(inspect.signature(method).parameters.values())
    required = [one for one in parameters[1:] if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if len(parameters) < 2 or len(required) > 1:
        raise ContractError(f"{where} must take exactly self and the {contract}")
