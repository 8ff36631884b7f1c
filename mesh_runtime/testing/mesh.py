"""*mesh*: a stand-in for the mesh in which an author's module composes, against answers that the test states, without a broker.

The library's own parts do the work: the controller's asker asks, the module's answerer and composer answer, its asker asks the lookups.
Only what lies between them is a stand-in: a line that hands each message over in the loop's next turn, as an exchange would, and
answers lookups as the test says. So a refusal that a test sees here is the one that a push would print.

    async def test_the_motd_names_the_store(mesh: StandInMesh) -> None:
        composed = await mesh.compose(Motd, answers={StoreReachableFrom: Found(value=StoreAt(...), revision=1)})
        assert section_of(composed, Files).files[0].content == "..."
"""

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from mesh_runtime.asking import Asker, Scope, scoped
from mesh_runtime.broker import Consumer, Delivery, Properties, Returned, Session, Wire
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.base import Ask, Section
from mesh_runtime.contracts.composing import Composed, Machine
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.manifest import Manifest
from mesh_runtime.contracts.outcomes import Refused
from mesh_runtime.contracts.rights import rights_of
from mesh_runtime.runtime import ModuleRuntime
from mesh_runtime.runtime.life import parts_of
from mesh_runtime.settings import Address, ModuleSettings, RuntimeSettings
from mesh_runtime.startup import RuntimeState
from mesh_runtime.testing.stating import Answering, CannotBe, Failing, bodies_of, check_stated, stated_for

VERSION = "0.stand-in"
BUDGET = 2.0
"""Seconds that a compose may take here, unless a test says otherwise: what is never answered ends by it."""

S = TypeVar("S", bound=Section)

ALPHA = Machine(name="alpha", address="10.77.0.1")
"""The machine that is composed for, unless a test names another."""


@dataclass
class StandInLine:
    """One end of the stand-in: takes the place of a session's channel, for the identity whose login it is."""

    exchange: "StandInExchange"
    login: str
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    backlog: int = 0

    def publish(self, exchange: str, key: str, body: bytes, props: Properties, mandatory: bool = True) -> None:
        """Hand a message over, in the loop's next turn."""
        asyncio.get_running_loop().call_soon(self.exchange.route, self, exchange, key, body, props)

    def ack(self, tag: int) -> None:
        """Nothing is kept, so nothing is settled."""


class StandInExchange:
    """Between the ends: routes composes and answers, and answers lookups as stated."""

    def __init__(self, answers: Mapping[type[Ask[Any]], Answering]) -> None:
        self.answers = answers
        self.not_stated: set[str] = set()
        self.asked: list[Ask[Any]] = []
        """Every lookup that arrived, in order."""
        self.replies: dict[str, Callable[[Delivery], None]] = {}
        self.composes: dict[str, Callable[[Delivery], None]] = {}
        self.returns: dict[str, Callable[[Returned], None]] = {}
        self.lose: dict[str, Callable[[], None]] = {}
        self._types: dict[str, type[Ask[Any]]] = {ask.type_name(): ask for ask in answers}

    def route(self, line: StandInLine, exchange: str, key: str, body: bytes, props: Properties) -> None:
        """One message, from the end that it comes from."""
        delivery = _delivery(line.login, exchange, key, body, props)
        if exchange == wire.REPLIES and key in self.replies:
            self.replies[key](delivery)
        elif exchange == wire.CONTROL and key in self.composes:
            self.composes[key](delivery)
        elif exchange == wire.ASKS:
            self._lookup(line, key, delivery, props)

    def _lookup(self, line: StandInLine, key: str, delivery: Delivery, props: Properties) -> None:
        kind = self._types.get(delivery.type)
        if kind is None:
            self.not_stated.add(delivery.type)
            return self._return(line, key, delivery)
        try:
            ask = kind.model_validate_json(delivery.body)
        except ValidationError as unsound:
            raise AssertionError(f"the module sent an unsound {delivery.type}: {unsound}") from unsound
        self.asked.append(ask)
        stated = stated_for(self.answers, ask)
        who = f"{kind.answered_by or 'anybody'}@stand-in"
        if stated is None or stated is Failing.NOBODY:
            return self._return(line, key, delivery)
        if stated is Failing.SESSION_LOST:
            return self.lose[line.login]()
        after = (props.expiration or 0) / 1000 + 1.0 if stated is Failing.LATE else 0.0
        for body in bodies_of(stated, who):
            answer = Properties(type=delivery.type, message_id=secrets.token_hex(8), correlation_id=delivery.message_id, user_id=who)
            reply = _delivery(who, wire.REPLIES, delivery.reply_to, body, answer)
            reply.received += after
            self.replies[delivery.reply_to](reply)
        return None

    def _return(self, line: StandInLine, key: str, delivery: Delivery) -> None:
        self.returns[line.login](Returned(delivery.message_id, delivery.correlation_id, delivery.type, 312, "NO_ROUTE", wire.ASKS, key))


class NotStated(AssertionError):
    """The module asked something about which the test states nothing."""


@dataclass
class StandInMesh:
    """Composes modules. ``asked`` are the lookups that the last compose asked, in order."""

    directory: Path
    asked: list[Ask[Any]] = field(default_factory=list)

    async def compose(
        self,
        cls: type[ModuleRuntime],
        machine: Machine = ALPHA,
        *,
        answers: Mapping[type[Ask[Any]], Answering] | None = None,
        settings: ModuleSettings | None = None,
        granted: Mapping[str, object] | None = None,
        budget: float = BUDGET,
    ) -> Composed | Refused:
        """What the module answers to the controller that asks it to compose ``machine``; ``prepare`` has run, ``keep`` has not.

        ``answers`` states, for each ask that the module may make, its outcome or the way in which it goes unanswered; see
        ``mesh_runtime.testing.stating``. ``granted`` states, by the name of each ``@granted`` method that is read, what it yields: nothing
        is asked for or entered here. Raises CannotBe for what cannot be stated, NotStated if the module asks anything else, and Unanswered
        if the module gave no answer at all.
        """
        stated = answers or {}
        check_stated(stated)
        exchange = StandInExchange(stated)
        identity = Identity(cls.module, machine.name)
        state = RuntimeState(str(identity), VERSION, os.getpid())
        module, parts = parts_of(cls, settings or cls.settings_class()(), self._settings(machine.name), VERSION, state)
        _grant(module, granted or {})
        controller = _controller(exchange)
        line = StandInLine(exchange, str(identity))
        _join(exchange, line, parts.asker)
        exchange.lose[line.login] = lambda: parts.asker.detach("the stand-in's session was lost")
        if parts.answerer.levels:
            parts.answerer.attach(cast("Wire", line), dict.fromkeys(parts.answerer.levels, cast("Wire", line)))
        if "compose" in parts.answerer.levels:
            exchange.composes[wire.compose_key(cls.module)] = parts.answerer.receiver("compose")
        else:
            raise TypeError(f"{cls.__name__} has no method compose, so it composes nothing")
        try:
            with scoped(Scope(what="prepare")):
                await module.prepare()
            return cast("Composed | Refused", await controller.compose(cls.module, machine, budget))
        finally:
            await parts.answerer.finish(0.0)
            parts.answerer.detach()
            parts.asker.detach("the compose is over")
            controller.detach("the compose is over")
            self.asked = exchange.asked
            if exchange.not_stated:
                names = ", ".join(sorted(exchange.not_stated))
                raise NotStated(f"{cls.__name__} asked {names}, and the test states no answer to it: state one, or a way of failing")

    def _settings(self, machine: str) -> RuntimeSettings:
        return RuntimeSettings(
            broker=(Address("stand-in.invalid", 5671),),
            ca_pin="0" * 64,
            credentials=self.directory / "credentials",
            machine=machine,
            state_dir=self.directory / "state",
        )


def section_of(composed: Composed | Refused, kind: type[S]) -> S:
    """The section of this class in what was composed. Raises AssertionError if it was refused, or holds no such section."""
    assert isinstance(composed, Composed), f"it was refused: {composed}"
    found = [one.body for one in composed.sections if one.section == kind.section]
    assert found, f"no section {kind.section!r} among {[one.section for one in composed.sections]}"
    return kind.model_validate(found[0])


@dataclass(frozen=True)
class _StatedGrant:
    """What stands in the place of a grant that was entered."""

    value: object

    def taken(self) -> None:
        """Nothing is ever left here."""

    def let_go(self) -> None:
        """As above."""


def _grant(module: ModuleRuntime, granted: Mapping[str, object]) -> None:
    methods = type(module).granted_methods
    if strange := sorted(granted.keys() - methods.keys()):
        known = f"it has {', '.join(sorted(methods))}" if methods else "it has none"
        raise CannotBe(f"{type(module).__name__} has no @granted method {', '.join(strange)}: {known}")
    for name, value in granted.items():
        methods[name].slot(module).put(_StatedGrant(value))


def _controller(exchange: StandInExchange) -> Asker:
    identity = Identity("controller", "stand-in")
    manifest = Manifest(module="controller", version=VERSION, command=("mesh-runtime-controller", "run"), seat="controller")
    asker = Asker(identity, rights_of(identity, manifest), RuntimeState(str(identity), VERSION, os.getpid()))
    _join(exchange, StandInLine(exchange, str(identity)), asker)
    return asker


def _join(exchange: StandInExchange, line: StandInLine, asker: Asker) -> None:
    exchange.replies[wire.reply_key(line.login, line.id)] = asker.on_reply
    exchange.returns[line.login] = asker.on_returned
    asker.attach(cast("Session", line), cast("Wire", line))


def _delivery(login: str, exchange: str, key: str, body: bytes, props: Properties) -> Delivery:
    return Delivery(
        body=body,
        type=props.type,
        message_id=props.message_id,
        correlation_id=props.correlation_id,
        app_id=props.app_id,
        user_id=login,
        expiration=None if props.expiration is None else str(props.expiration),
        reply_to=props.reply_to,
        headers=dict(props.headers or {}),
        exchange=exchange,
        routing_key=key,
        delivery_tag=1,
        redelivered=False,
        received=asyncio.get_running_loop().time(),
        consumer=cast("Consumer", None),
    )
