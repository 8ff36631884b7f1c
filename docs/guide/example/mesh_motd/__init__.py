"""Greets whoever logs in: each machine's /etc/motd says its placement's words, and names the machines beside it and the store."""

from pydantic import Field

from mesh_runtime import Absent, File, Files, Found, Machine, ModuleRuntime, ModuleSettings, OverlayPeers, Refused, StoreReachableFrom


class MotdSettings(ModuleSettings):
    """`MESH_MOTD_PATH`."""

    path: str = Field(default="/etc/motd", description="The file that holds the greeting.", examples=["/etc/motd"])


class Motd(ModuleRuntime):
    """Placed by `mesh place motd MACHINE greeting=TEXT`."""

    settings: MotdSettings

    async def compose(self, machine: Machine) -> Files | Refused:
        """One file. If a question goes unanswered, `ask` raises, and the library refuses this compose, naming the question."""
        greeting = machine.parameters.get("greeting")
        if greeting is None:
            return Refused(code="no-greeting", why="the placement has no parameter `greeting`; place it again with one")
        peers, store = await self.ask(OverlayPeers(of=machine.name), StoreReachableFrom(machine=machine.name))
        images: str
        match store:
            case Found(value=at):
                images = f"Images come from {at.address}."
            case Absent():
                images = "This mesh has no store."
        beside = ", ".join(sorted(peer.machine for peer in peers.value)) or "nobody"
        return Files(files=(File(path=self.settings.path, content=f"{greeting}\nBeside {machine.name}: {beside}.\n{images}\n"),))
