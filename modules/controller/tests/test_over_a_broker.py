"""The whole way over a real broker: an operator places and pushes, a module composes from lookups, a host takes and reports."""

from pathlib import Path

from mesh_runtime import (
    Absent,
    File,
    Files,
    Machine,
    ModuleRuntime,
    NoStore,
    OverlayPeers,
    Refused,
    StoreReachableFrom,
    TrustStore,
    told,
)
from mesh_runtime.contracts import ElementReport, FoundedMachine, Founding, Report, SignedDeclaration, Statement, element_digest
from mesh_runtime.contracts.operating import Place, Placed, Push, Pushed
from mesh_runtime.runtime import manifest_of
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from mesh_runtime.trust.signing import SigningKey
from mesh_runtime_controller import Controller
from mesh_runtime_controller.catalog import Catalog
from mesh_runtime_controller.settings import ControllerSettings

ELEMENT = "files/motd/etc/motd"


class Motd(ModuleRuntime):
    """Composes a file that says what the mesh is like."""

    async def compose(self, machine: Machine) -> tuple[Files, TrustStore | NoStore] | Refused:
        peers, store = await self.ask(OverlayPeers(of=machine.name), StoreReachableFrom(machine=machine.name))
        trust = NoStore() if isinstance(store, Absent) else TrustStore(address=store.value.address, ca=store.value.ca)
        content = f"{machine.name} and {len(peers.value)} more\n"
        return Files(files=(File(path="/etc/motd", content=content),)), trust


class StandInHost(ModuleRuntime):
    """Believes what is signed, and reports it as in force."""

    module = "host"
    tells = (Report,)
    key: SigningKey
    taken: list[Statement]

    @told(SignedDeclaration)
    async def declared(self, signed: SignedDeclaration) -> None:
        self.key.verify_key.verify(signed.statement.encode(), signed.signature)
        statement = Statement.model_validate_json(signed.statement)
        self.taken.append(statement)
        (files,) = [Files.model_validate(one.body) for one in statement.sections if one.section == "files"]
        digest = element_digest(files.elements()["/etc/motd"])
        await self.report(statement, ElementReport(element=ELEMENT, state="in-force", digest=digest))

    async def report(self, of: Statement | None, *elements: ElementReport) -> None:
        await self.tell(
            Report(
                machine=self.machine,
                mesh=of.mesh if of else "",
                epoch=of.epoch if of else 0,
                generation=of.generation if of else 0,
                verdict="in-force" if of else "standing",
                elements=elements,
                knows=("files", "registry-trust"),
            )
        )


class StandInOperator(ModuleRuntime):
    """Asks what the command asks."""

    module = "operator"


async def test_a_push_goes_the_whole_way_and_a_silent_module_refuses_it(runtimes: Runtimes, tmp_path: Path) -> None:
    key = SigningKey.generate()
    key.save(tmp_path / "controller.key")
    machines = (FoundedMachine(name="alpha", address="10.0.0.1"), FoundedMachine(name="beta", address="10.0.0.2"))
    (tmp_path / "founding.json").write_text(Founding(mesh="m-1", machines=machines).model_dump_json())
    own = ControllerSettings(signing_key=tmp_path / "controller.key", founding=tmp_path / "founding.json")
    async with (
        runtimes.run(Controller, own=own) as controller,
        runtimes.run(Motd) as motd,
        runtimes.run(StandInHost) as host,
        runtimes.run(StandInOperator) as operator,
    ):
        controller.module.pushing.catalog = lambda: Catalog({"motd": manifest_of(Motd, "1")})
        host.module.key, host.module.taken = key, []
        for one in (controller, motd, host, operator):
            await one.ready()
        ask = operator.module.ask
        placed = await ask(Place(module="motd", machine="alpha"))
        assert isinstance(placed, Placed)
        pushed = await ask(Push())
        assert isinstance(pushed, Pushed)
        assert [one.verdict for one in pushed.machines] == ["unheard"]
        await host.module.report(None)
        await until(lambda: controller.state.ready, "the controller is ready")
        verdict = ""
        while verdict != "in-force":  # the report travels; the test's own time limit ends this
            pushed = await ask(Push(patience=5))
            (outcome,) = pushed.machines
            assert outcome.verdict in ("unheard", "in-force"), outcome
            verdict = outcome.verdict
        assert [section.section for section in host.module.taken[-1].sections] == ["files", "registry-trust"]
        assert host.module.taken[-1].sections[0].body["files"][0]["content"] == "alpha and 1 more\n"
        assert [one.verdict for one in (await ask(Push())).machines] == ["unchanged"]
        assert len(host.module.taken) == 1
        await motd.ended()
        (outcome,) = (await ask(Push())).machines
        assert (outcome.verdict, outcome.refused.code) == ("refused", "unanswered")
        assert "compose of motd for alpha: nobody" in outcome.why
