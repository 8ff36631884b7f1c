"""*hostroot*: a host over a temporary root, with a controller's key to sign with and ears that hear its reports, or are deaf."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from mesh_runtime import TooLarge
from mesh_runtime.contracts import File, Files, Identity, Report, Section, SignedDeclaration
from mesh_runtime.telling import NotSent
from mesh_runtime.trust import SigningKey
from mesh_runtime_host import Host
from mesh_runtime_host.settings import HostSettings

MESH = "test-mesh"
MACHINE = "node-1"


class Ears:
    """Hears what the host tells; deaf, it is a broker that is away."""

    def __init__(self) -> None:
        self.deaf = False
        self.limit = 10**9
        self.heard: list[Report] = []
        self.ids: list[str] = []

    async def tell(self, report: Report, to: Identity | None, message_id: str, budget: float) -> str:
        """As `Teller.tell`."""
        if self.deaf:
            raise NotSent("all.report.1 was not sent: no session with the broker now")
        if (size := len(report.model_dump_json())) > self.limit:
            raise TooLarge(size, self.limit, "body")
        self.heard.append(report)
        self.ids.append(message_id)
        return message_id


class HostRoot:
    """A machine: its root, its host's state, and the controller that may declare for it."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.root.mkdir()
        self.state_dir = directory / "state" / f"host@{MACHINE}"
        self.controller = SigningKey.generate()
        self.key_file = directory / "controller.pub"
        self.key_file.write_text(f"{self.controller.verify_key}\n")
        self.ears = Ears()

    def host(self, *, guard: float = 0.02, root: Path | None = None) -> Host:
        """A host as it is after a start."""
        settings = HostSettings(controller_key=self.key_file, root=root or self.root, guard=guard)
        made = Host(Identity("host", MACHINE), settings, self.state_dir, cast("Any", None), cast("Any", self.ears))
        made.reporter._pause = 0.01
        return made

    @asynccontextmanager
    async def running(self, host: Host | None = None) -> AsyncIterator[Host]:
        """A host whose `keep` runs."""
        host = host or self.host()
        keep = asyncio.create_task(host.keep())
        try:
            yield host
        finally:
            keep.cancel()
            ended = await asyncio.gather(keep, return_exceptions=True)
            assert isinstance(ended[0], asyncio.CancelledError), ended

    def statement(self, generation: int, *sections: tuple[str, Section], **changes: Any) -> dict[str, Any]:
        """A statement as the controller would write it; `removes` are names of elements."""
        removes = [{"element": name, "evidence": "operator", "detail": "a test"} for name in changes.pop("removes", ())]
        declared = [{"module": module, "section": one.section, "body": one.model_dump(mode="json")} for module, one in sections]
        statement = {"mesh": MESH, "machine": MACHINE, "epoch": 1, "generation": generation, "revision": 3}
        return statement | {"sections": declared, "removes": removes} | changes

    def files(self, generation: int, contents: dict[str, str], mode: int = 0o644, **changes: Any) -> SignedDeclaration:
        """Files of the module `motd`."""
        section = Files(files=tuple(File(path=path, content=content, mode=mode) for path, content in contents.items()))
        return self.declaration(generation, ("motd", section), **changes)

    def sign(self, statement: dict[str, Any] | str) -> SignedDeclaration:
        """Signed by the controller's key."""
        text = statement if isinstance(statement, str) else json.dumps(statement)
        return SignedDeclaration(statement=text, signature=self.controller.sign(text.encode()))

    def declaration(self, generation: int, *sections: tuple[str, Section], **changes: Any) -> SignedDeclaration:
        """Both at once."""
        return self.sign(self.statement(generation, *sections, **changes))

    def snapshot(self) -> dict[str, str]:
        """Every file, link and directory under the root, with what is in it."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            what = f"-> {path.readlink()}" if path.is_symlink() else "/"
            if path.is_file() and not path.is_symlink():
                what = f"{path.stat().st_mode & 0o7777:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
            found[str(path.relative_to(self.root))] = what
        return found


@pytest.fixture
def hostroot(tmp_path: Path) -> HostRoot:
    """A machine of its own for each test."""
    return HostRoot(tmp_path)
