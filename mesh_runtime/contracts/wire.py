"""Names and limits of what travels: exchanges, routing keys, queues. One place for all of them.

One exchange per class of privilege, since only the right to write an exchange is a boundary at the broker (topic permissions can be
passed by ``CC`` headers and by dead-lettering). Source: ``docs/design``, *Messages*.
"""

import math
from typing import Final

from mesh_runtime.contracts.identity import Identity

CONTROL: Final = "mesh.control"  #: The controller alone writes: composes and declarations.
ASKS: Final = "mesh.asks"  #: Runtimes write lookups and provisions, operators tools.
TELLS: Final = "mesh.tells"  #: Runtimes write reports, their modules' tells, and what they park.
REPLIES: Final = "mesh.replies"  #: Runtimes write answers.
EXCHANGES: Final = (CONTROL, ASKS, TELLS, REPLIES)

#: Levels of asks, highest first. A handler asks only below its own.
LEVELS: Final = ("tool", "compose", "provision", "lookup")

#: Bytes. Checked by the sender, well below the broker's own limits (16 MiB bodies on 4.x; 128 KiB frames hold all headers).
BODY_LIMIT: Final = 4 * 1024 * 1024
HEADER_LIMIT: Final = 32 * 1024

#: Seconds that an ask may take unless its asker says otherwise. Budgets travel as durations, never as wall-clock times.
DEFAULT_BUDGET: Final = 30.0
#: Of what is left, the part that a nested ask gets, so that the answerer can still say why.
NESTED_SHARE: Final = 0.9

EPOCH_HEADER: Final = "mesh-epoch"
GENERATION_HEADER: Final = "mesh-generation"
TRACE_HEADER: Final = "traceparent"
PARK_REASON: Final = "mesh-park-reason"
PARK_COUNT: Final = "mesh-park-count"
PARK_FIRST: Final = "mesh-park-first"
PARK_LAST: Final = "mesh-park-last"
PARK_SENDER: Final = "mesh-park-sender"
PARKS: Final = "mesh-park-"  #: How the names of all of them begin.

#: The type of an operator's act on parked tells (``contracts.parking``), which every runtime that is told something answers.
PARKED_ACT: Final = "parked-act.1"


def checked_budget(budget: float) -> float:
    """``budget`` itself, or ValueError: what is no number compares with nothing, and a timer of it would disorder all of the loop's."""
    if math.isnan(budget):
        raise ValueError("the budget is nan: it must be a number of seconds")
    return budget


def compose_key(module: str) -> str:
    """On ``mesh.control``: asks the composing runtime of a module."""
    return f"compose.{module}"


def declare_key(machine: str) -> str:
    """On ``mesh.control``: tells a machine's host its declaration."""
    return f"declare.{machine}"


def ask_key(level: str, type_name: str) -> str:
    """On ``mesh.asks``: a lookup, provision or tool of this type."""
    return f"{level}.{type_name}"


def ask_to_key(level: str, identity: Identity | str, type_name: str) -> str:
    """On ``mesh.asks``: an ask of this type of one identity."""
    return f"{level}.{identity}.{type_name}"


def all_key(type_name: str) -> str:
    """On ``mesh.tells``: a tell to whoever listens to its type."""
    return f"all.{type_name}"


def to_key(identity: Identity | str, type_name: str) -> str:
    """On ``mesh.tells``: a tell to one identity."""
    return f"to.{identity}.{type_name}"


def parked_key(identity: Identity | str) -> str:
    """On ``mesh.tells``: a tell that its receiver could not handle, put aside."""
    return f"parked.{identity}"


def reply_key(identity: Identity | str, session: str) -> str:
    """On ``mesh.replies``: the asker's session."""
    return f"{identity}.{session}"


def asks_queue(identity: Identity | str, session: str, level: str) -> str:
    """Exclusive: what a session answers at one level."""
    return f"asks.{identity}.{session}.{level}"


def replies_queue(identity: Identity | str, session: str) -> str:
    """Exclusive: the answers to what a session asked, and its proof."""
    return f"replies.{identity}.{session}"


def tells_queue(identity: Identity | str) -> str:
    """Durable quorum: what an identity is told."""
    return f"tells.{identity}"


def provides_queue(type_name: str) -> str:
    """Exclusive: held by the one issuer of a type of resource."""
    return f"provides.{type_name}"


def parked_queue(identity: Identity | str) -> str:
    """Durable quorum: what an identity has parked."""
    return f"parked.{identity}"
