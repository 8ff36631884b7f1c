"""An operator's acts on parked tells, as a test says them."""

from typing import Any

from mesh_runtime.contracts.outcomes import Refused
from mesh_runtime.contracts.parking import ParkedAct, ParkedDeed, ParkedShown, ParkedTell
from mesh_runtime.testing.running import Running
from mesh_runtime.testing.waiting import until

ORACLE = "oracle@alpha"


async def act(operator: Running, deed: ParkedDeed, message: str = "", *, of: str = ORACLE, budget: float = 10.0) -> ParkedShown | Refused:
    """The outcome of one act. Raises Unanswered."""
    outcomes: dict[str, Any] = await operator.module.ask_each(ParkedAct(act=deed, message=message), of=[of], budget=budget)
    outcome: ParkedShown | Refused = outcomes[of]
    return outcome


async def shown(operator: Running, deed: ParkedDeed, message: str = "", **how: Any) -> ParkedShown:
    """The outcome of an act that is not refused."""
    outcome = await act(operator, deed, message, **how)
    assert isinstance(outcome, ParkedShown), outcome
    return outcome


async def refused(operator: Running, deed: ParkedDeed, message: str = "", **how: Any) -> Refused:
    """The refusal of an act."""
    outcome = await act(operator, deed, message, **how)
    assert isinstance(outcome, Refused), outcome
    return outcome


async def rows(operator: Running, count: int, of: str = ORACLE) -> tuple[ParkedTell, ...]:
    """What stands parked, once it is so many."""
    seen: tuple[ParkedTell, ...] = ()

    async def there() -> bool:
        nonlocal seen
        seen = (await shown(operator, "list", of=of)).rows
        return len(seen) >= count

    await until(there, f"{count} tells are parked", within=10)
    assert len(seen) == count, seen
    return seen
