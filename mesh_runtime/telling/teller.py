"""Sending tells: into durable quorum queues, mandatory, confirmed by the broker, within a deadline."""

import asyncio
from uuid import uuid4

import structlog

from mesh_runtime.asking.scope import carried, current_scope, trace_header
from mesh_runtime.broker import (
    ChannelLost,
    ConfirmedChannel,
    NotRouted,
    OutcomeUnknown,
    Properties,
    PublishRefused,
    SessionLost,
)
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.base import Tell
from mesh_runtime.contracts.declaring import SignedDeclaration
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.rights import Rights

log = structlog.stdlib.get_logger(__name__)


class NotSent(Exception):
    """The tell certainly did not arrive: nobody listens, the broker refused it, or there was no session."""


class SendUnknown(Exception):
    """The tell may or may not have arrived. Send it again under the same ``message_id``; its receiver takes repeats."""

    def __init__(self, words: str, message_id: str) -> None:
        super().__init__(f"{words}; message id {message_id}")
        self.message_id = message_id


class Teller:
    """Tells on behalf of one runtime. Lives as long as the runtime; sessions are attached and detached."""

    def __init__(self, identity: Identity, rights: Rights) -> None:
        self._me = str(identity)
        self._rights = rights
        self._channel: ConfirmedChannel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self, channel: ConfirmedChannel) -> None:
        """Send over this channel from now on."""
        self._channel, self._loop = channel, asyncio.get_running_loop()

    def detach(self) -> None:
        """The session is over; its channel has failed what was under way."""
        self._channel = None

    async def tell(self, tell: Tell, to: Identity | None = None, message_id: str = "", budget: float = wire.DEFAULT_BUDGET) -> str:
        """Send ``tell`` to one identity, or to whoever listens to its type; see ``ModuleRuntime.tell``."""
        key = wire.all_key(tell.type_name()) if to is None else wire.to_key(to, tell.type_name())
        return await self._send(tell, wire.TELLS, key, message_id, {}, budget)

    async def declare(
        self, machine: str, declaration: SignedDeclaration, epoch: int, generation: int, budget: float = wire.DEFAULT_BUDGET
    ) -> str:
        """Send a machine's host its declaration; for the holder of the controller's seat."""
        headers = {wire.EPOCH_HEADER: epoch, wire.GENERATION_HEADER: generation}
        return await self._send(declaration, wire.CONTROL, wire.declare_key(machine), "", headers, budget)

    async def _send(self, tell: Tell, exchange: str, key: str, message_id: str, headers: dict[str, int], budget: float) -> str:
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            work = self._send_here(tell, exchange, key, message_id, headers, budget)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
        return await self._send_here(tell, exchange, key, message_id, headers, budget)

    async def _send_here(self, tell: Tell, exchange: str, key: str, message_id: str, headers: dict[str, int], budget: float) -> str:
        wire.checked_budget(budget)
        if not self._rights.may_publish(exchange, key):
            who = f"{type(tell).__name__} is told by {tell.told_by or 'modules that list it under `tells`'}"
            raise NotSent(f"{self._me} may not publish {key} to {exchange}: {who}")
        channel = self._channel
        if channel is None:
            raise NotSent(f"{key} was not sent: no session with the broker now")
        scope = current_scope()
        message_id = message_id or uuid4().hex
        properties = Properties(
            type=tell.type_name(),
            message_id=message_id,
            correlation_id=(carried(scope.correlation) if scope is not None else "") or message_id,
            app_id=self._me,
            user_id=self._me,
            headers={wire.TRACE_HEADER: trace_header(scope.trace if scope is not None else ""), **headers},
            persistent=True,
        )
        try:
            await channel.publish(exchange, key, tell.model_dump_json().encode(), properties, timeout=budget)
        except NotRouted as nobody:
            raise NotSent(f"{key} was not sent: nobody listens to it ({nobody})") from nobody
        except (PublishRefused, SessionLost, ChannelLost) as refused:
            raise NotSent(f"{key} was not sent: {refused}") from refused
        except OutcomeUnknown as unknown:
            raise SendUnknown(f"whether {key} arrived is unknown: {unknown}", message_id) from unknown
        return message_id
