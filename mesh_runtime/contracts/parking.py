"""An operator's acts on parked tells: look, replay, drop. Answered by the runtime that parked them, for itself alone.

A parked tell is named by an ``id`` of what it is (who told it, its type, its message id, its body), not by a place: it stays the same when
a replay fails, and two copies of one tell, as a cut may leave them, have the same.
"""

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from mesh_runtime.contracts.base import Lookup, Tool
from mesh_runtime.contracts.outcomes import Found, Outcome, Refused

ParkedDeed = Literal["list", "show", "replay", "drop"]


class ParkedTell(BaseModel):
    """One parked tell. ``count`` is how often it was tried, ``first`` and ``last`` when (UTC, ISO 8601), ``size`` its body's in bytes.

    ``put_by`` is empty for what its runtime has parked. Else it names the login that put it there; nothing else is believed of it then.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    id: str
    type: str
    message_id: str
    sender: str
    reason: str
    count: int
    first: str
    last: str
    size: int
    put_by: str = ""


class ParkedShown(Outcome):
    """What came of the act: after ``list`` all that is parked, the oldest first, else the one that it was about.

    ``more`` is how many were not looked at, ``body`` is shown by ``show`` alone, secrets masked; ``cut`` if it is not the whole. ``failed``
    says why a replay did not succeed: the tell is still parked, with that reason.
    """

    outcome: Literal["parked-shown"] = "parked-shown"
    act: ParkedDeed
    rows: tuple[ParkedTell, ...]
    more: int = 0
    body: str = ""
    cut: bool = False
    failed: str = ""
    by: str = ""


class ParkedAct(Tool[ParkedShown | Refused]):
    """Act on the parked tells of the identity that is asked. ``message`` is the id of one; ``list`` needs none."""

    addressed: ClassVar[bool] = True

    act: ParkedDeed
    message: str = Field(default="", max_length=64)


class Listeners(Lookup[Found[tuple[str, ...]]], answered_by="controller"):
    """Identities of all placed runtimes that are told something: those that may have parked tells. A list: whole or unanswered."""
