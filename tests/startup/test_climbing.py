"""What a climb keeps in mind is bounded, however long it goes on."""

import pytest

from mesh_runtime import ModuleRuntime
from mesh_runtime.runtime import climbing
from mesh_runtime.startup import Pace, Stage
from mesh_runtime.startup.pace import PACES
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until


class Unsettled(ModuleRuntime):
    """Its ``prepare`` raises another text each time, as one does that quotes a time or a port."""

    tries = 0

    async def prepare(self) -> None:
        self.tries += 1
        raise RuntimeError(f"not this time: {self.tries}")


async def test_errors_that_never_read_the_same_are_not_all_kept(runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACES, Stage.PREPARE, Pace(deadline=5.0, first=0.001, cap=0.001))
    kept: list[int] = []
    plain = climbing.Climber._unknown

    def noting(self: climbing.Climber, stage: Stage, error: Exception) -> object:
        fault = plain(self, stage, error)
        kept.append(len(self._traced))
        return fault

    monkeypatch.setattr(climbing.Climber, "_unknown", noting)
    monkeypatch.setattr(climbing, "TRACED", 4)  # each one's traceback is rendered: many take long on a busy machine
    async with runtimes.run(Unsettled):
        await until(lambda: len(kept) > 8, "it has raised eight times", within=20)
    assert max(kept) == 4, "what was said once is kept for ever"
