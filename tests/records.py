"""Fixtures for tests that run runtimes in this process: what the library logged, as records; and errors that only the loop heard of."""

import gc
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from mesh_runtime.testing.logs import own_records

Records = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def records() -> Iterator[Records]:
    """Every record of the library's own loggers, with its bound context; nothing is rendered, which costs a busy machine much."""
    kept: Records = []

    def keep(_logger: object, level: str, event: Any) -> Any:
        kept.append({**event, "level": level})
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, keep])
    yield kept
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _nothing_that_only_the_loop_heard_of() -> Iterator[None]:
    """A runtime takes the loop's exception handler over, and with it what the leak fixture would see: it is looked at here."""
    with own_records(logging.WARNING) as kept:
        yield
        gc.collect(1)
    unseen = [f"{one.getMessage()} {one.exc_info[1]!r}" if one.exc_info else one.getMessage() for one in kept if one.name == "asyncio"]
    unseen = [one for one in unseen if "injected" not in one and "socket.send() raised" not in one]
    if unseen:
        pytest.fail("only the loop heard of: " + "; ".join(unseen), pytrace=False)


def said(records: Records, event: str, **fields: Any) -> Records:
    """The records of this event whose fields have these values."""
    return [one for one in records if one["event"] == event and all(one.get(name) == value for name, value in fields.items())]
