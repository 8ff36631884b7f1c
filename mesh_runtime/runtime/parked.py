"""How a runtime answers operators about its own parked tells. What it takes to act on them is loaded when the first one asks."""

from typing import TYPE_CHECKING

from mesh_runtime.asking import Answer, Scope
from mesh_runtime.contracts.outcomes import Outcome
from mesh_runtime.contracts.rights import OPERATOR
from mesh_runtime.startup import RuntimeState
from mesh_runtime.telling import Listener

if TYPE_CHECKING:
    from mesh_runtime.contracts.parking import ParkedAct
    from mesh_runtime.telling.unparking import Unparking


def about_parked(me: str, listener: Listener, state: RuntimeState) -> Answer:
    """The answer to an operator's act on what ``listener`` has parked."""
    from mesh_runtime.contracts.parking import ParkedAct

    acting: Unparking | None = None

    async def handle(ask: "ParkedAct", scope: Scope) -> Outcome:
        nonlocal acting
        if acting is None:
            from mesh_runtime.telling.unparking import Unparking

            acting = Unparking(me, listener, state)
        return await acting.act(ask, scope)

    return Answer(ParkedAct, handle, f"what is parked at {me}", frozenset({OPERATOR}))
