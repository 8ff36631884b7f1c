"""A module whose author is careless with a secret in every way in which authors are. It is run as a process."""

import asyncio
import gc
import logging
import threading
import urllib.parse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from pydantic import BaseModel, SecretStr, ValidationError, field_validator

from mesh_runtime import Found, Lookup, ModuleRuntime, ModuleSettings, answers, told
from tests.parts import Noted

log = structlog.stdlib.get_logger("author")
std = logging.getLogger("driver")


def dsn(secret: str) -> str:
    """The text of an error as drivers write it."""
    return f"cannot reach postgres://user:{urllib.parse.quote(secret, safe='')}@db/orders, nor with {secret}"


class Spilling(ModuleSettings):
    """Its own secret."""

    key: SecretStr


class Spill(Lookup[Found[str]], answered_by="spiller"):
    """Asks the module to spill its secret in one of its ways."""

    way: str

    @field_validator("way")
    @classmethod
    def _validated(cls, way: str) -> str:
        if way == "validator":
            raise ValueError(dsn(Spiller.secret))
        return way


class Login(BaseModel):
    """What a driver would validate."""

    port: int


class Closing:
    """Fails when it is collected."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def __del__(self) -> None:
        raise OSError(dsn(self.secret))


class Spiller(ModuleRuntime):
    """Its ``prepare`` raises until the file ``prepared`` stands in its state directory; with ``crash`` there it cannot even be made."""

    settings: Spilling
    secret = ""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        Spiller.secret = self.settings.key.get_secret_value()
        if (self.state_dir / "crash").exists():
            raise SystemError(dsn(self.secret))

    async def keep(self) -> None:
        """Spills by the log in each way, then marks it by the file ``spilled``."""
        for spill in (_error_with_dsn, _local, _validation, _warning, _thread, _finaliser):
            spill(self.secret)
        await _never_retrieved(self.secret)
        (self.state_dir / "spilled").touch()
        await asyncio.Event().wait()

    async def prepare(self) -> None:
        """Raises what a database that is away would."""
        if not (self.state_dir / "prepared").exists():
            raise ConnectionRefusedError(dsn(self.secret))

    @answers(Spill)
    async def spill(self, ask: Spill) -> Found[str]:
        """Raises, or returns what cannot be written."""
        if ask.way == "unwritable":
            return Found(value=f"\ud800 {dsn(self.secret)}", revision=1)
        raise KeyError(dsn(self.secret))

    @told(Noted)
    async def note(self, tell: Noted) -> None:
        """Raises."""
        raise RuntimeError(dsn(self.secret))


def _raising(raise_: Callable[[], object]) -> None:
    try:
        raise_()
    except (ConnectionError, ValidationError):
        log.exception("failed")
        std.exception("failed")


def _error_with_dsn(secret: str) -> None:
    def login() -> None:
        raise ConnectionError(dsn(secret))

    _raising(login)


def _local(secret: str) -> None:
    def login() -> None:
        kept = [secret]
        raise ConnectionError(f"refused: {kept}")

    _raising(login)


def _validation(secret: str) -> None:
    _raising(lambda: Login(port=secret))
    _raising(lambda: Login(port=secret * 9))


def _warning(secret: str) -> None:
    warnings.warn(f"deprecated: {secret}", stacklevel=1)


def _thread(secret: str) -> None:
    def work() -> None:
        raise OSError(dsn(secret))

    thread = threading.Thread(target=work, name="driver")
    thread.start()
    thread.join()


def _finaliser(secret: str) -> None:
    Closing(secret)


async def _never_retrieved(secret: str) -> None:
    async def work() -> None:
        raise OSError(dsn(secret))

    task = asyncio.get_running_loop().create_task(work(), name=secret)
    asyncio.get_running_loop().call_soon(int, secret)
    await asyncio.wait([task])
    del task
    gc.collect()


def text_of_files(directory: Path) -> str:
    """What stands in all files below a directory, with their names."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return "\n".join(f"{path.relative_to(directory)}: {path.read_bytes().decode(errors='backslashreplace')}" for path in files)
