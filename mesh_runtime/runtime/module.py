"""``ModuleRuntime``: what an author subclasses to write a module. Everything else about being a runtime is the library's."""

from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_type_hints, overload

from mesh_runtime.asking import Asker, current_scope
from mesh_runtime.compose import Slot, slots_of
from mesh_runtime.contracts.base import Ask, ContractError, Tell, kebab
from mesh_runtime.contracts.composing import Composed, Machine
from mesh_runtime.contracts.declaring import SignedDeclaration
from mesh_runtime.contracts.identity import Identity, check_name
from mesh_runtime.contracts.outcomes import Refused
from mesh_runtime.runtime.authoring import answered_by, granted_to, told_to
from mesh_runtime.settings import ModuleSettings
from mesh_runtime.telling import Teller

A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")


class ModuleRuntime:
    """One placement's runtime. Subclass it; there is no ``main`` to write.

    Class attributes: ``module``, the module's name (default: the class's name in kebab-case); ``seat``, a role with one holder that it
    takes; ``tells``, the contracts that it tells. Annotate ``settings`` with a subclass of ``ModuleSettings`` to be given
    ``MESH_<MODULE>_<NAME>``.

    Methods to write, all optional: ``keep``, ``prepare``, ``compose``, and any number marked ``@answers``, ``@told`` or ``@granted``. A
    mistake in the class raises ``ContractError`` when it is made.
    """

    module: ClassVar[str] = ""
    seat: ClassVar[str | None] = None
    tells: ClassVar[tuple[type[Tell], ...]] = ()

    slots: ClassVar[tuple[Slot, ...]] = ()
    answer_methods: ClassVar[dict[str, type[Ask[Any]]]] = {}
    told_methods: ClassVar[dict[str, type[Tell]]] = {}
    granted_methods: ClassVar[dict[str, Any]] = {}  # of GrantedMethod: hints are read at run time

    settings: ModuleSettings

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "module" not in vars(cls) and not cls.module:
            cls.module = kebab(cls.__name__)
        check_name(f"the module of {cls.__name__}", cls.module)
        super().__init_subclass__(**kwargs)  # what else it is may ask which module it is
        cls.answer_methods = answered_by(cls, cls.module)
        cls.told_methods = told_to(cls)
        cls.granted_methods = granted_to(cls, cls.module)
        own = getattr(cls, "compose", None)
        cls.slots = slots_of(own) if own is not None else ()
        for tell in cls.tells:
            if tell.told_by and tell.told_by != cls.module:
                raise ContractError(
                    f"{cls.__name__}.tells: {tell.__name__} is told by the module {tell.told_by!r} alone, this is {cls.module!r}"
                )

    def __init__(self, identity: Identity, settings: ModuleSettings, state_dir: Path, asker: Asker, teller: Teller) -> None:
        self.identity = identity
        self.settings = settings
        self.state_dir = state_dir
        self._asker = asker
        self._teller = teller

    @classmethod
    def settings_class(cls) -> type[ModuleSettings]:
        """The class of its own settings, as annotated."""
        hint = get_type_hints(cls).get("settings", ModuleSettings)
        if not (isinstance(hint, type) and issubclass(hint, ModuleSettings)):
            raise ContractError(f"{cls.__name__}.settings must be annotated with a subclass of ModuleSettings, not {hint!r}")
        return hint

    # ------------------------------------------------------------------------------------------------ to be written

    async def keep(self) -> None:
        """Guard what the module owns without the broker: runs from right after the settings are read until the process ends.

        It may return when there is nothing to guard; if it raises, that is logged, shown as degraded, and it is started again.
        """

    async def prepare(self) -> None:
        """Make ready what the module needs, once a session. Repeatable. What it raises is shown, and it is tried again."""

    # ``compose(self, machine: Machine) -> SECTIONS | Refused`` is not written here: a module without it composes nothing.

    # ------------------------------------------------------------------------------------------------ to be used

    @property
    def machine(self) -> str:
        """The name of the machine that it runs on."""
        return self.identity.machine

    @property
    def asked_by(self) -> str:
        """In a handler: the identity that sent what is handled, validated by the broker. Elsewhere: empty."""
        scope = current_scope()
        return "" if scope is None else scope.sender

    @overload
    def ask(self, q1: Ask[A1], /, *, budget: float | None = None) -> Coroutine[Any, Any, A1]: ...
    @overload
    def ask(self, q1: Ask[A1], q2: Ask[A2], /, *, budget: float | None = None) -> Coroutine[Any, Any, tuple[A1, A2]]: ...
    @overload
    def ask(self, q1: Ask[A1], q2: Ask[A2], q3: Ask[A3], /, *, budget: float | None = None) -> Coroutine[Any, Any, tuple[A1, A2, A3]]: ...
    @overload
    def ask(self, *questions: Ask[A1], budget: float | None = None) -> Coroutine[Any, Any, tuple[A1, ...]]: ...
    def ask(self, *questions: Ask[Any], budget: float | None = None) -> Coroutine[Any, Any, Any]:
        """Ask, within ``budget`` seconds (default 30; in a handler at most nine tenths of what is left of its own).

        One question gives its outcome, several are asked together and give a tuple. Raises ``Unanswered``, naming every question
        without an answer, once all have ended; ``LevelError`` from a handler that asks at its own level or above.
        """
        return self._asker.ask(*questions, budget=budget)

    def ask_each(self, question: Ask[A1], of: Collection[str], budget: float | None = None) -> Coroutine[Any, Any, dict[str, A1]]:
        """Ask several identities (``module@machine``) one question that each of them answers; gives an outcome for every one of them.

        Raises ``Unanswered`` with reason ``partial``, naming those that are missing, if one is: a part of the answers is no answer.
        """
        return self._asker.ask_each(question, of, budget)

    async def tell(self, tell: Tell, to: Identity | None = None, *, message_id: str = "", budget: float = 30.0) -> str:
        """Tell one identity, or whoever listens; returns the message's id once the broker has confirmed that it is stored.

        Raises ``NotSent`` (it certainly did not arrive), ``SendUnknown`` (it may have: tell it again with the same ``message_id``),
        ``TooLarge``.
        """
        return await self._teller.tell(tell, to, message_id, budget)

    def ask_to_compose(self, module: str, machine: Machine, budget: float | None = None) -> Coroutine[Any, Any, Composed | Refused]:
        """For the holder of the controller's seat: ask a module for its sections of a machine. Raises ``Unanswered``."""
        return self._asker.compose(module, machine, budget)

    async def declare(self, machine: str, declaration: SignedDeclaration, epoch: int, generation: int) -> str:
        """For the holder of the controller's seat: tell a machine's host its declaration. Raises as ``tell`` does."""
        return await self._teller.declare(machine, declaration, epoch, generation)
