"""*stopped_at*: the wait that is meant, the rest of the work's own way, and its end."""

import asyncio

import pytest

from mesh_runtime.testing.stopping import stopped_at


async def test_it_is_cancelled_at_the_wait_that_is_meant_and_cleans_up_with_waits_of_its_own() -> None:
    seen: list[str] = []

    async def work() -> str:
        try:
            for name in ("first", "second", "third"):
                seen.append(name)
                await asyncio.sleep(0 if name == "first" else 0.001)
        except asyncio.CancelledError:
            seen.append("told to stop")
            await asyncio.sleep(0.001)
            seen.append("cleaned up")
            raise
        return "done"

    expected = ["first", "second", "third"]
    for wait in range(3):
        seen.clear()
        with pytest.raises(asyncio.CancelledError):
            await stopped_at(wait, work())
        assert seen == [*expected[: wait + 1], "told to stop", "cleaned up"]
    assert await stopped_at(3, work()) == "done"


async def test_what_it_waited_for_is_cancelled_and_what_it_raises_comes_out() -> None:
    awaited: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        try:
            await awaited
        except asyncio.CancelledError:
            raise ValueError("it says another word") from None

    with pytest.raises(ValueError, match="another word"):
        await stopped_at(0, work())
    assert awaited.cancelled()
