"""Greets whoever logs in: each machine's /etc/motd says its placement's words. Who was greeted is kept in a database."""

from collections.abc import AsyncIterator

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from mesh_runtime import Database, DatabaseAccess, Machine, ModuleRuntime, ModuleSettings, granted, told
from mesh_runtime.contracts import Absent, File, Files, OverlayPeers, Refused, StoreReachableFrom, Tell


class Greeted(Tell):
    """Somebody was greeted. The id is the key: told twice, it is kept once."""

    id: str


class MotdSettings(ModuleSettings):
    """`MESH_MOTD_PATH`, the file that holds the greeting."""

    path: str = "/etc/motd"


class Motd(ModuleRuntime):
    """Placed by `mesh place motd MACHINE greeting=TEXT --key FILE`."""

    settings: MotdSettings

    @granted(Database(name="motd"))
    async def pool(self, access: DatabaseAccess) -> AsyncIterator[AsyncConnectionPool]:
        """Entered at startup, and again beside the one in force when the login is replaced."""
        async with await AsyncConnection.connect(**access.fields()) as db:
            await db.execute("CREATE TABLE IF NOT EXISTS greeted (id text PRIMARY KEY)")
        async with AsyncConnectionPool(kwargs=access.fields(), check=AsyncConnectionPool.check_connection, open=False) as pool:
            yield pool

    @told(Greeted)
    async def keep_greeted(self, greeted: Greeted) -> None:
        """One row; its return acknowledges the tell."""
        async with self.pool.connection() as db:
            await db.execute("INSERT INTO greeted VALUES (%s) ON CONFLICT DO NOTHING", (greeted.id,))

    async def compose(self, machine: Machine) -> Files | Refused:
        """One file. If a question goes unanswered, `ask` raises, and the library refuses this compose, naming the question."""
        if (greeting := machine.parameters.get("greeting")) is None:
            return Refused(code="no-greeting", why="the placement has no parameter `greeting`; place it again with one")
        peers, store = await self.ask(OverlayPeers(of=machine.name), StoreReachableFrom(machine=machine.name))
        images = "This mesh has no store." if isinstance(store, Absent) else f"Images come from {store.value.address}."
        beside = ", ".join(sorted(peer.machine for peer in peers.value)) or "nobody"
        return Files(files=(File(path=self.settings.path, content=f"{greeting}\nBeside {machine.name}: {beside}.\n{images}\n"),))
