"""A refusal leaves masked: neither why nor which question, or of what kind its fault was, may carry a secret on to whoever reads it."""

from mesh_runtime import Machine, ModuleRuntime, NoStore, Refused
from mesh_runtime.logging import register_secret
from mesh_runtime.testing.mesh import StandInMesh
from mesh_runtime.testing.stating import Failing
from tests.asking.parts import Say

SECRET = "S3cr3t-in-a-question"


class Blunt(ModuleRuntime):
    async def compose(self, machine: Machine) -> NoStore:
        register_secret(SECRET)
        await self.ask(Say(how=SECRET))
        return NoStore()


async def test_a_secret_in_a_question_is_masked_wherever_its_refusal_names_it(mesh: StandInMesh) -> None:
    refused = await mesh.compose(Blunt, answers={Say: Failing.NOBODY})
    assert isinstance(refused, Refused)
    (missing,) = refused.unanswered
    assert missing.question == "say(how='***')"
    assert SECRET not in refused.model_dump_json()
