"""What a process writes is kept as it came and can be waited for; what this process logs is kept from every logger."""

import asyncio
import logging

import pytest

from mesh_runtime.testing.logs import Logs, own_records


async def test_lines_are_kept_as_they_came_and_records_are_found_by_their_fields() -> None:
    logs, reader = Logs(), asyncio.StreamReader()
    reader.feed_data(b'{"event": "ready", "session": "a"}\nnot JSON \xff\n[1]\n{"event": "ready", "session": "b"}')
    reader.feed_eof()
    await logs.follow("stdout", reader)
    assert [line.text for line in logs.lines][1:3] == ["not JSON �", "[1]"]
    assert [one["session"] for one in logs.records(event="ready")] == ["a", "b"]
    assert logs.records(event="ready", session="b", missing=None) == logs.records(session="b")
    assert logs.records(event="gone") == []


async def test_a_record_that_is_still_to_come_is_waited_for() -> None:
    logs = Logs()
    asyncio.get_running_loop().call_later(0.05, logs.add, "stderr", '{"event": "late"}')
    assert await logs.until(within=5, event="late") == {"event": "late"}
    with pytest.raises(AssertionError, match=r"no record with \{'event': 'never'\} within 0\.05 s; the last lines:\n.*late"):
        await logs.until(within=0.05, event="never")


def test_own_records_come_from_every_logger_at_debug() -> None:
    with own_records() as records:
        logging.getLogger("anybody").debug("said %s", "so")
    logging.getLogger("anybody").debug("afterwards")
    assert [(one.name, one.getMessage()) for one in records] == [("anybody", "said so")]


def test_the_fixture_keeps_what_is_logged_during_the_test(logs: list[logging.LogRecord]) -> None:
    logging.getLogger("anybody").info("here")
    assert [one.getMessage() for one in logs] == ["here"]
