"""Runtimes that behave in the ways in which authors' code behaves while a process starts and stops. They are run as processes."""

import asyncio
import sys
import time

from mesh_runtime import Absent, Found, answers, told
from tests.parts import Noted, Sage, Weather, WeatherAt


class Unready(Sage):
    """Its ``prepare`` raises until the file ``prepared`` stands in its state directory."""

    module = "sage"

    async def prepare(self) -> None:
        """Raises what a database that is away would."""
        if not (self.state_dir / "prepared").exists():
            raise ConnectionRefusedError(111, "the database is away")


class Hanging(Sage):
    """Its ``prepare`` never ends."""

    module = "sage"

    async def prepare(self) -> None:
        """Waits for what never comes."""
        await asyncio.Event().wait()


class Stubborn(Sage):
    """Its ``prepare`` hangs in a thread, and swallows its cancellation: the worst that an author can do."""

    module = "sage"

    async def prepare(self) -> None:
        """Nothing but the end of the process ends it."""
        while True:
            try:
                await asyncio.to_thread(time.sleep, 60)
            except asyncio.CancelledError:
                continue


class Blocking(Sage):
    """Its loop is blocked while the file ``block`` stands in its state directory."""

    module = "sage"

    async def keep(self) -> None:
        """Looks for the file, and blocks."""
        while True:
            while (self.state_dir / "block").exists():
                time.sleep(0.02)  # noqa: ASYNC251
            await asyncio.sleep(0.02)


class Leaving(Sage):
    """A task of its own making calls ``sys.exit(3)`` once the file ``leave`` stands in its state directory."""

    module = "sage"

    async def keep(self) -> None:
        """Starts the task, and waits."""
        task = asyncio.get_running_loop().create_task(self._leave())
        await asyncio.wait([task])

    async def _leave(self) -> None:
        while not (self.state_dir / "leave").exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.02)
        sys.exit(3)


class Careless(Sage):
    """Its ``keep`` raises while the file ``careful`` is missing, and notes each of its starts in ``kept``."""

    module = "sage"

    async def keep(self) -> None:
        """Returns once there is nothing to keep."""
        with (self.state_dir / "kept").open("a") as file:
            file.write("started\n")
        if not (self.state_dir / "careful").exists():
            raise LookupError("nothing to keep")


class Slow(Sage):
    """Handling takes a while: asks half a second, tells until the file ``handled`` stands in its state directory."""

    module = "sage"

    @answers(WeatherAt)
    async def weather(self, ask: WeatherAt) -> Found[Weather] | Absent:
        """Slowly."""
        (self.state_dir / "answering").touch()
        await asyncio.sleep(0.5)
        return Found(value=Weather(sky=f"clear at {ask.place}"), revision=1)

    @told(Noted)
    async def note(self, tell: Noted) -> None:
        """Holds its tell."""
        (self.state_dir / "handling").touch()
        while not (self.state_dir / "handled").exists():  # noqa: ASYNC110 - the test's hand
            await asyncio.sleep(0.02)
