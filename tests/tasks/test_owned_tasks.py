"""No task ends, fails or hangs without its owner being told (B37)."""

import asyncio
import gc
import logging

import pytest

from mesh_runtime.tasks import EndedUnasked, TaskOwner

Ended = list[tuple[str, BaseException | None]]


@pytest.fixture
def ended() -> Ended:
    return []


@pytest.fixture
def owner(ended: Ended) -> TaskOwner:
    return TaskOwner("session", lambda name, error: ended.append((name, error)))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def returns() -> str:
    return "done"


async def waits() -> None:
    await asyncio.Event().wait()


async def test_an_essential_task_that_raises_is_logged_and_reported_with_its_error(
    owner: TaskOwner, ended: Ended, caplog: pytest.LogCaptureFixture
) -> None:
    """The line whose removal makes this fail: `self._on_end(name, error)`."""

    async def fails() -> None:
        raise ValueError("of the loop")

    owner.start(fails(), "consumer")
    await turns()
    ((name, error),) = ended
    assert (name, str(error)) == ("consumer", "of the loop")
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert vars(record)["task"] == "consumer"
    assert len(owner) == 0


async def test_an_essential_task_that_merely_returns_is_reported_too(owner: TaskOwner, ended: Ended) -> None:
    owner.start(returns(), "watchdog")
    await turns()
    assert ended == [("watchdog", None)]


async def test_a_task_that_may_end_is_only_logged_and_only_if_it_fails(
    owner: TaskOwner, ended: Ended, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails() -> None:
        raise ValueError("once")

    assert await owner.start(returns(), "a", essential=False) == "done"
    owner.start(fails(), "b", essential=False)
    await turns()
    assert ended == []
    assert [vars(record)["task"] for record in caplog.records] == ["b"]


async def test_a_bare_cancellation_that_nobody_asked_for_is_a_fault(owner: TaskOwner, ended: Ended) -> None:
    async def ended_by_the_client() -> None:
        raise asyncio.CancelledError

    owner.start(ended_by_the_client(), "publisher")
    owner.start(ended_by_the_client(), "call", essential=False)
    await turns()
    ((name, error),) = ended
    assert name == "publisher"
    assert isinstance(error, EndedUnasked)


async def test_whoever_holds_a_task_that_may_end_may_cancel_it_in_silence(owner: TaskOwner, caplog: pytest.LogCaptureFixture) -> None:
    task = owner.start(waits(), "handler", essential=False)
    await turns()
    task.cancel()
    await turns()
    assert caplog.records == []
    assert len(owner) == 0


async def test_a_task_survives_without_anybody_else_holding_it(owner: TaskOwner) -> None:
    woken = asyncio.Event()
    passed: list[str] = []

    async def works() -> None:
        await woken.wait()
        passed.append("worked")

    owner.start(works(), "works", essential=False)
    await turns()
    gc.collect()
    woken.set()
    await turns()
    assert passed == ["worked"]


async def test_stop_cancels_all_and_reports_no_end(owner: TaskOwner, ended: Ended) -> None:
    tasks = [owner.start(waits(), f"t{at}") for at in range(3)]
    await turns()
    assert owner.names == ("t0", "t1", "t2")
    assert await owner.stop(1) == ()
    assert all(task.cancelled() for task in tasks)
    assert ended == []


async def test_stop_names_what_still_hangs_and_where_it_stands(owner: TaskOwner, caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()

    async def stubborn_inner() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async def stubborn() -> None:
        await stubborn_inner()

    task = owner.start(stubborn(), "stubborn")
    owner.start(waits(), "willing")
    await turns()
    assert await owner.stop(0.1) == ("stubborn",)
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "stubborn_inner (" in vars(record)["stands"]
    release.set()
    await task


async def test_stop_does_not_depend_on_a_single_cancellation_being_delivered(owner: TaskOwner) -> None:
    async def swallows_one() -> None:
        try:
            await waits()
        except asyncio.CancelledError:
            await waits()

    owner.start(swallows_one(), "swallows")
    await turns()
    assert await owner.stop(0.2) == ()


async def test_stop_called_from_an_owned_task_leaves_that_task_out(owner: TaskOwner) -> None:
    async def stops() -> tuple[str, ...]:
        return await owner.stop(1)

    owner.start(waits(), "other")
    assert await owner.start(stops(), "stops") == ()


async def test_after_a_stop_nothing_is_started(owner: TaskOwner) -> None:
    await owner.stop(1)
    with pytest.raises(RuntimeError, match="is stopping"):
        owner.start(waits(), "late")


async def test_a_cancelled_stop_passes_the_cancellation_on(owner: TaskOwner) -> None:
    release = asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await waits()
        finally:
            await release.wait()

    held = owner.start(slow_to_end(), "slow")
    await turns()
    stopping = asyncio.ensure_future(owner.stop(10))
    await turns()
    stopping.cancel()
    await turns()
    assert stopping.cancelled()
    release.set()
    await asyncio.wait([held])
