"""The host as a runtime of its own, told by a controller through a real broker."""

from typing import TYPE_CHECKING, ClassVar

import pytest

from mesh_runtime.contracts import Report, SignedDeclaration
from mesh_runtime.runtime import ModuleRuntime, told
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from mesh_runtime_host import Host
from mesh_runtime_host.settings import HostSettings

if TYPE_CHECKING:
    from conftest import HostRoot


class Controller(ModuleRuntime):
    """Declares, and hears reports."""

    module = "controller"
    seat = "controller"
    heard: ClassVar[list[tuple[str, Report]]] = []

    @told(Report)
    async def report(self, report: Report) -> None:
        """Note who told what."""
        self.heard.append((self.asked_by, report))


@pytest.mark.timeout(60)
async def test_a_declaration_goes_out_and_its_verdict_comes_back(runtimes: Runtimes, hostroot: "HostRoot") -> None:
    Controller.heard.clear()
    own = HostSettings(controller_key=hostroot.key_file, root=hostroot.root, guard=0.05)
    signed = hostroot.files(1, {"/etc/motd": "hello"}, machine="node-1")
    async with runtimes.run(Controller, "alpha") as controller, runtimes.run(Host, "node-1", own) as host:
        await controller.ready()
        await host.ready()
        first = await until(lambda: Controller.heard, "what the host knows")
        assert (first[0][0], first[0][1].verdict, first[0][1].generation) == ("host@node-1", "standing", 0)
        await controller.module.declare("node-1", signed, 1, 1)
        verdict = await until(lambda: [one for _, one in Controller.heard if one.verdict == "in-force"], "the verdict")
        assert (verdict[0].generation, verdict[0].elements[0].element) == (1, "files/motd/etc/motd")
        assert (hostroot.root / "etc/motd").read_text() == "hello"
        forged = SignedDeclaration(statement=signed.statement, signature="AAAA")
        await controller.module.declare("node-1", forged, 1, 2)
        refused = await until(lambda: [one for _, one in Controller.heard if one.verdict == "refused"], "the refusal")
        assert refused[0].why.startswith("not-signed: ")
