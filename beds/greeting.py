"""The guide's example as its author would install it, for the bed: its distribution, its manifest, and a load of its tells.

Nothing here knows its class: the manifest is printed by its own program, and its tells are sent by their contract's name.
"""

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from beds.outside import broker_at
from mesh_runtime import Tell
from mesh_runtime.broker import open_session
from mesh_runtime.contracts import Identity, Manifest
from mesh_runtime.contracts.rights import rights_of
from mesh_runtime.telling import NotSent, SendUnknown, Teller
from mesh_runtime.testing.founding import FoundedMesh

EXAMPLE = Path(__file__).resolve().parents[1] / "docs" / "guide" / "example"
MODULE = "motd"


class Greeted(Tell):
    """As the example's: the id is the key."""

    id: str


def install(site: Path) -> None:
    """Install the example's distribution under ``site``, by pip and offline. Raises CalledProcessError."""
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index", "--target")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, str(site), str(EXAMPLE)], check=True, capture_output=True, timeout=120
    )


def program(site: Path) -> list[str]:
    """The command of its runtime."""
    return [sys.executable, str(site / "bin" / f"mesh-runtime-{MODULE}"), "run"]


def manifest(site: Path) -> Manifest:
    """What its own program prints."""
    command = [*program(site)[:-1], "manifest"]
    printed = subprocess.run(command, check=True, capture_output=True, timeout=60, env={**os.environ, "PYTHONPATH": str(site)})
    return Manifest.model_validate_json(printed.stdout)


@dataclass
class Load:
    """Tells at a steady rate, each with an id of its own. ``sent`` are those that the broker has confirmed."""

    founded: FoundedMesh
    who: Identity
    rate: float
    """Tells a second."""
    sent: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    async def run(self, prefix: str, until: asyncio.Event, most: int = 100_000) -> None:
        """Tell until told to end, at most so many; what is unknown is told again under its own message id."""
        session = await open_session(broker_at(self.founded, self.who), str(self.who))
        try:
            teller = Teller(self.who, rights_of(self.who, self.founded.manifests[self.who]))
            teller.attach(await session.confirmed())
            loop = asyncio.get_running_loop()
            begun, number, under_way = loop.time(), 0, set[asyncio.Task[None]]()
            while number < most and not until.is_set():
                task = loop.create_task(self._tell(teller, f"{prefix}-{number}"))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                number += 1
                await asyncio.sleep(max(0.0, begun + number / self.rate - loop.time()))
            await asyncio.gather(*under_way)
        finally:
            await session.close()

    async def _tell(self, teller: Teller, number: str) -> None:
        message_id = ""
        for _ in range(3):
            try:
                await teller.tell(Greeted(id=number), message_id=message_id)
                return self.sent.append(number)
            except SendUnknown as unknown:
                message_id = unknown.message_id
            except NotSent as not_sent:
                return self.failed.append(f"{number}: {not_sent}")
        return self.failed.append(f"{number}: unknown")
