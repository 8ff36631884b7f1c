"""What a stage is: causes, pace, and the one state object that everybody shows.

This layer knows what a stage is and no stage: each stage stands with its subject (``broker``, ``trust``, ``runtime``), and ``runtime`` puts
them in order. It promises that whoever waits always says on which stage, why, since when and after how many attempts; it refuses to end a
process: a stage is *not yet* or needs somebody, never fatal.
"""

from mesh_runtime.startup.cause import Cause, Kind, Stage, StageFault, blocked, waiting
from mesh_runtime.startup.pace import PACES, Pace, climbing_waits
from mesh_runtime.startup.state import RuntimeState

__all__ = [
    "PACES",
    "Cause",
    "Kind",
    "Pace",
    "RuntimeState",
    "Stage",
    "StageFault",
    "blocked",
    "climbing_waits",
    "waiting",
]
