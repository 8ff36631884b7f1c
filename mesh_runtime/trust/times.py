"""Times in a fault's words: UTC, to the second."""

from datetime import UTC, datetime


def spelled(moment: datetime) -> str:
    """``2026-11-30T12:00:00Z``."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
