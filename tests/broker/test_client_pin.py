"""What this layer takes from aiormq and pamqp beyond their documented use.

A new version that moves it fails here, by name, and not in the field.
"""

import asyncio
import inspect
from importlib.metadata import version

import aiormq
import pamqp.frame
import pytest
from aiormq.connection import FrameReceiver, TransportFactory
from pamqp import commands

from mesh_runtime.broker import Session
from mesh_runtime.broker.login import PlainConnection
from mesh_runtime.testing.waiting import until


@pytest.mark.parametrize(("package", "major"), [("aiormq", "7.2."), ("pamqp", "4.0.")])
def test_the_versions_are_those_that_were_read(package: str, major: str) -> None:
    assert version(package).startswith(major), f"read the source of {package} again, then change this line"


def test_the_end_of_the_reader_is_ours_to_tell() -> None:
    """aiormq's own logs a traceback for each loss and makes a task that nobody owns."""
    assert "_on_reader_done" in vars(aiormq.Connection)
    assert list(inspect.signature(aiormq.Connection._on_reader_done).parameters) == ["self", "task"]
    assert "add_done_callback(self._on_reader_done)" in inspect.getsource(aiormq.Connection.connect)
    assert PlainConnection._on_reader_done is not aiormq.Connection._on_reader_done


def test_every_task_is_made_by_the_method_that_is_watched() -> None:
    source = inspect.getsource(aiormq.connection)
    assert source.count("loop.create_task(") == 1, "only _on_reader_done, which is replaced, makes one by itself"
    assert "self.create_task(" in source


def test_a_transport_is_taken_from_the_factory() -> None:
    assert list(inspect.signature(TransportFactory.create).parameters) == ["self", "url", "kwargs"]
    assert "transport_factory" in inspect.signature(aiormq.Connection).parameters


async def test_frames_are_read_from_the_reader_alone() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(pamqp.frame.marshal(commands.Connection.Unblocked(), 0))
    _, channel, frame = await FrameReceiver(reader).get_frame()
    assert (channel, type(frame)) == (0, commands.Connection.Unblocked)


async def test_the_connection_keeps_what_the_session_reads_of_it(session: Session) -> None:
    connection = session._connection
    assert connection.connection_tune.frame_max == 131_072
    assert connection.heartbeat_timeout == 15
    assert isinstance(connection.accept_consumer_cancel_ok, bool)
    assert connection.channels == {}, "no channel of aiormq's own: all numbers are ours"
    assert len(connection.tasks) == 3, "reader, writer, heartbeat"


async def test_its_tasks_end_with_the_session(session: Session) -> None:
    tasks = set(session._connection.tasks)
    session.abort()
    await until(lambda: all(task.done() for task in tasks))
    assert not session._connection.tasks
