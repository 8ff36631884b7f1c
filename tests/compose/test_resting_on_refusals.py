"""An author may go on without what was refused. The compose then says that it rests on a refusal, so that it is seen when that moves."""

import pytest

from mesh_runtime import Machine, ModuleRuntime, NoStore, Refused
from mesh_runtime.contracts.composing import Composed, Rested
from mesh_runtime.testing.mesh import StandInMesh
from mesh_runtime.testing.stating import Stated
from tests.asking.parts import Give, Granted


class Thrifty(ModuleRuntime):
    async def compose(self, machine: Machine) -> NoStore:
        await self.ask(Give())
        return NoStore()


async def rested_on(mesh: StandInMesh, answer: Stated) -> Rested:
    composed = await mesh.compose(Thrifty, answers={Give: answer})
    assert isinstance(composed, Composed), composed
    (rested,) = composed.rested
    return rested


async def test_a_refusal_is_named_as_one_and_told_from_a_grant(mesh: StandInMesh) -> None:
    refused = await rested_on(mesh, Refused(code="full", why="no room"))
    granted = await rested_on(mesh, Granted(what="room"))
    assert (refused.outcome, refused.by) == ("refused", "oracle@stand-in")
    assert granted.outcome == "found"
    assert refused.fingerprint != granted.fingerprint


@pytest.mark.parametrize(
    ("other", "moved"), [(Refused(code="full", why="no room at 12:03"), False), (Refused(code="away", why="no room"), True)]
)
async def test_it_has_moved_if_its_code_has_and_not_if_its_words_have(mesh: StandInMesh, other: Refused, moved: bool) -> None:
    first = await rested_on(mesh, Refused(code="full", why="no room"))
    assert ((await rested_on(mesh, other)).fingerprint != first.fingerprint) is moved
