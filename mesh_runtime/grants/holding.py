"""The consumer's side of grants: everything that one runtime is granted, at the stage ``grants`` and after.

Grants are asked for together, and all that is in the way is said. They live as long as the process, over however many sessions, and are
left at its end.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from mesh_runtime.contracts.granting import GrantAsk, GrantConfirmed, Granted, GrantRevoked, GrantRotated
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.outcomes import Refused
from mesh_runtime.grants.granted import GrantedMethod
from mesh_runtime.grants.held import Consumer, Held
from mesh_runtime.startup import Kind, Stage, StageFault, blocked, waiting
from mesh_runtime.tasks import attempt

log = structlog.stdlib.get_logger(__name__)

Ask = Callable[[GrantAsk], Awaitable[Granted | Refused]]
Confirm = Callable[[GrantConfirmed, Identity, str], Awaitable[object]]


class Holder:
    """Holds what ``module``, running as ``identity``, is granted by its ``methods`` (by name); see ``Consumer``."""

    def __init__(
        self,
        module: object,
        methods: Mapping[str, GrantedMethod[Any]],
        identity: Identity,
        key_file: Path | None,
        ask: Ask,
        confirm: Confirm,
    ) -> None:
        consumer = Consumer(module, identity, key_file, ask, confirm, self._again, contextvars.copy_context())
        self._held = {method.resource.text: Held(consumer, method) for method in methods.values()}
        self._why = ""
        self._recalled = asyncio.Event()

    async def enter_all(self) -> None:
        """Have every grant in force and confirmed. Raises StageFault (grants), which names all that are not."""
        self._recalled.clear()
        errors = await asyncio.gather(*(attempt(one.climb()) for one in self._held.values()))
        faults = [one for one in errors if isinstance(one, StageFault)]
        for error in errors:
            if error is not None and not isinstance(error, StageFault):
                raise error
        if faults:
            raise _together(faults)

    async def recalled(self) -> str:
        """Wait until a grant has ended without which this runtime is not ready; why."""
        await self._recalled.wait()
        return self._why

    def _again(self, why: str) -> None:
        self._why = why
        self._recalled.set()

    async def rotated(self, tell: GrantRotated, sender: str) -> None:
        """Handle the tell of ``sender``, whom the broker validated."""
        if (held := self._of(tell.resource, sender)) is not None:
            await held.rotated(tell, sender)

    async def revoked(self, tell: GrantRevoked, sender: str) -> None:
        """As ``rotated``."""
        if (held := self._of(tell.resource, sender)) is not None:
            await held.revoked(tell, sender)

    def _of(self, resource: str, sender: str) -> Held | None:
        held = self._held.get(resource)
        if held is None:
            log.warning("a grant was told of that this module does not need", resource=resource, sender=sender)
        return held

    async def leave(self, within: float) -> None:
        """Leave all that is open; by force after ``within`` seconds."""
        await asyncio.gather(*(one.leave(within) for one in self._held.values()))


def _together(faults: list[StageFault]) -> StageFault:
    """One fault for all: blocked if somebody must act for one of them."""
    if len(faults) == 1:
        return faults[0]
    causes = [one.cause for one in faults]
    words = "; ".join(one.text for one in causes)
    on = ", ".join(dict.fromkeys(one.on for one in causes if one.on))
    codes = dict.fromkeys(one.code for one in causes)
    code = next(iter(codes)) if len(codes) == 1 else "several"
    return (blocked if any(one.kind is Kind.BLOCKED for one in causes) else waiting)(Stage.GRANTS, code, words, on)
