"""A module that is careless with what it is granted. It is run as a process."""

import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

from mesh_runtime import ModuleRuntime, granted, told
from tests.grants.parts import ONE, ThingAccess
from tests.parts import Noted
from tests.secrets.parts import dsn

log = structlog.stdlib.get_logger("author")
std = logging.getLogger("driver")


class Careless(ModuleRuntime):
    """Entering raises until the file ``works`` stands in its state directory; its handler raises for ever."""

    @granted(ONE)
    async def pool(self, access: ThingAccess) -> AsyncIterator[dict[str, object]]:
        secret = access.password.get_secret_value()
        log.info("entering", access=access, fields=access.fields(), sealed=access.revealed())
        std.warning("entering %r with %s by %s", access, access.fields(), _key())
        if not (self.state_dir / "works").exists():
            raise ConnectionRefusedError(dsn(secret))
        try:
            yield access.fields()
        finally:
            (self.state_dir / "left").touch()
            raise OSError(dsn(secret))

    @told(Noted)
    async def note(self, tell: Noted) -> None:
        """Raises."""
        raise RuntimeError(dsn(str(self.pool["password"])))


def _key() -> str:
    return Path(os.environ["MESH_KEY_FILE"]).read_text()
