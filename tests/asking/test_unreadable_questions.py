"""A question whose fields cannot be shown to people ends like any other, and costs neither its asker nor the session more than that."""

import asyncio
from typing import ClassVar

import pytest
from pydantic import BaseModel

from mesh_runtime import Found, Lookup, Machine, ModuleRuntime, NoStore
from mesh_runtime.contracts.composing import Composed
from mesh_runtime.testing.mesh import StandInMesh
from mesh_runtime.testing.stating import Failing


class Shy(BaseModel):
    def __repr__(self) -> str:
        raise LookupError("it has no words")


class About(Lookup[Found[str]], answered_by="controller"):
    what: Shy = Shy()


class Curious(ModuleRuntime):
    """Asks outside of a compose, where no question is entered into a record before it is sent."""

    ended: ClassVar[list[LookupError]] = []

    async def prepare(self) -> None:
        async with asyncio.timeout(5):
            try:
                await self.ask(About(), budget=0.2)
            except LookupError as error:
                self.ended.append(error)

    async def compose(self, machine: Machine) -> NoStore:
        return NoStore()


@pytest.mark.parametrize("failing", [Failing.NOBODY, Failing.NEVER, Failing.SESSION_LOST, Failing.LATE])
async def test_it_ends_with_what_its_words_raise_and_nothing_is_left_waiting(mesh: StandInMesh, failing: Failing) -> None:
    Curious.ended.clear()
    composed = await mesh.compose(Curious, answers={About: failing})
    assert [str(one) for one in Curious.ended] == ["it has no words"]
    assert isinstance(composed, Composed)
