"""Grants as an operator has them: the command, the real controller, a provisioner and a consumer, on a real broker."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mesh_runtime import ModuleRuntime
from mesh_runtime.contracts import FoundedMachine, Founding, Identity, Report
from mesh_runtime.runtime import manifest_of
from mesh_runtime.testing.founding import operator_manifest
from mesh_runtime.testing.running import Running, Runtimes
from mesh_runtime.testing.waiting import until
from mesh_runtime.trust.sealing import PrivateKey
from mesh_runtime.trust.signing import SigningKey
from mesh_runtime_controller import Controller
from mesh_runtime_controller.catalog import Catalog
from mesh_runtime_controller.settings import ControllerSettings
from mesh_runtime_operator.exits import Exit
from tests.grants.parts import ONE, StandInServer
from tests.grants.runtimes.parts import MakerRuntime, Shop

SHOP = "shop@alpha"


class StandInHost(ModuleRuntime):
    """Says that it is there."""

    module = "host"
    tells = (Report,)

    async def standing(self) -> None:
        await self.tell(Report(machine=self.machine, mesh="", epoch=0, generation=0, verdict="standing", elements=(), knows=("files",)))


@dataclass
class Desk:
    """An operator's desk: the command, in the context of a mesh with a controller and a host."""

    runtimes: Runtimes
    context: Path
    server: StandInServer

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("mesh")),
            *arguments,
            env=os.environ | {"MESH_CONTEXT": str(self.context), "COLUMNS": "300"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def done(self, *arguments: str) -> str:
        code, out, err = await self.run(*arguments)
        assert code == 0, err
        return out

    async def grants(self) -> list[dict[str, Any]]:
        rows = json.loads(await self.done("grants", "--json"))["grants"]
        assert isinstance(rows, list)
        return rows

    async def logins(self) -> list[tuple[int, str]]:
        """Sequence and state of every login that is shown."""
        return [(row["sequence"], row["state"]) for row in await self.grants()]

    def key(self, name: str) -> tuple[Path, Path]:
        """The files of a key pair that is made anew: private, public."""
        private, public = self.context / f"{name}.key", self.context / f"{name}.pub"
        key = PrivateKey.generate()
        key.save(private)
        public.write_text(f"{key.public_key}\n")
        return private, public

    async def placed(self) -> Path:
        """Provider and consumer are placed, the consumer with a key; the file of that."""
        private, public = self.key("shop")
        await self.done("place", "maker", "alpha")
        await self.done("place", "shop", "alpha", "--key", str(public))
        return private


@pytest_asyncio.fixture
async def desk(runtimes: Runtimes, tmp_path: Path, server: StandInServer) -> AsyncIterator[Desk]:
    SigningKey.generate().save(tmp_path / "controller.key")
    machines = (FoundedMachine(name="alpha", address="10.0.0.1"), FoundedMachine(name="beta", address="10.0.0.2"))
    (tmp_path / "founding.json").write_text(Founding(mesh="m-1", machines=machines).model_dump_json())
    own = ControllerSettings(signing_key=tmp_path / "controller.key", founding=tmp_path / "founding.json")
    async with runtimes.run(Controller, own=own) as controller, runtimes.run(StandInHost) as host:
        await until(lambda: controller.state.ready and host.state.ready, "controller and host are ready", within=60)
        manifests = {cls.module: manifest_of(cls, "1") for cls in (MakerRuntime, Shop)}
        controller.module.pushing.catalog = lambda: Catalog(manifests)
        await host.module.standing()
        yield Desk(runtimes, await context_of(runtimes, tmp_path / "context"), server)


async def context_of(runtimes: Runtimes, directory: Path) -> Path:
    """The operator's context: a login, and where the broker is."""
    credentials = await runtimes.login(Identity("operator", "alpha"), operator_manifest())
    (directory / "credentials").mkdir(parents=True)
    for file in credentials.iterdir():
        (directory / "credentials" / file.name).write_text(file.read_text())
    values = {
        "broker": f"127.0.0.1:{runtimes.broker.ports.amqps}",
        "name": runtimes.broker.name,
        "pin": runtimes.broker.ca.pin,
        "vhost": runtimes.vhost,
        "machine": "alpha",
        "state-root": str(directory),
    }
    for name, value in values.items():
        (directory / name).write_text(f"{value}\n")
    return directory


@asynccontextmanager
async def both(desk: Desk, key_file: Path) -> AsyncIterator[tuple[Running, Running]]:
    """Provisioner and consumer, ready: the consumer has entered its grant."""
    async with desk.runtimes.run(MakerRuntime) as maker, desk.runtimes.run(Shop, key_file=key_file) as shop:
        await shop.ready(within=60)
        yield maker, shop


async def settled(desk: Desk, *logins: tuple[int, str]) -> None:
    """Wait until just these logins are shown."""
    async with asyncio.timeout(60):
        while await desk.logins() != list(logins):  # noqa: ASYNC110 - each look is a process of its own, which takes its time
            await asyncio.sleep(0.1)


def sealed_to(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["identity"], row["resource"], row["issuer"]


@pytest.mark.timeout(240)
async def test_a_grant_is_shown_rotated_revoked_and_given_again(desk: Desk) -> None:
    async with both(desk, await desk.placed()) as (_, shop):
        await settled(desk, (1, "confirmed"))
        (row,) = await desk.grants()
        assert sealed_to(row) == (SHOP, "thing.1/one", "maker@alpha")
        assert row["since"]
        assert row["confirmed"]
        assert row["login"] in desk.server.accounts

        await desk.done("rotate", SHOP, "thing/one")
        await settled(desk, (2, "confirmed"))
        assert shop.module.pool.use() == 2
        assert row["login"] not in desk.server.accounts

        out = await desk.done("revoke", SHOP, "thing.1/one")
        assert f"{SHOP} thing.1/one: revoked by operator@alpha" in out
        assert not desk.server.accounts
        await until(lambda: shop.state.cause is not None and shop.state.cause.code == "revoked", "the consumer says so", within=60)
        code, _, err = await desk.run("rotate", SHOP, "thing.1/one")
        assert (code, "[revoked]" in err) == (Exit.REFUSED, True)

        await desk.done("rekey", SHOP)
        await until(lambda: shop.state.ready, "it was granted anew", within=60)
        assert shop.module.pool.use() == 3
        assert desk.server.owners == {ONE.text: "shop"}


@pytest.mark.timeout(240)
async def test_b64_another_key_waits_for_the_operators_word(desk: Desk) -> None:
    """The owner of the data is the same before and after. Held twice: by the issuer's record, and by the key that the controller knows."""
    first = await desk.placed()
    other, public = desk.key("other")
    async with both(desk, first):
        await settled(desk, (1, "confirmed"))
    async with desk.runtimes.run(MakerRuntime) as maker, desk.runtimes.run(Shop, key_file=other) as shop:
        await maker.ready(within=60)
        await until(lambda: shop.state.cause is not None and shop.state.cause.code == "other-key", "it is refused by name", within=60)
        assert shop.state.cause is not None
        assert f"mesh rekey {SHOP}" in shop.state.cause.text
        await desk.done("rekey", SHOP, "--key", str(public))
        await shop.ready(within=60)
        assert shop.module.pool.use() == 2
        await settled(desk, (2, "confirmed"))
        assert desk.server.owners == {ONE.text: "shop"}


@pytest.mark.timeout(240)
async def test_a_grant_ends_with_its_placement_once_that_was_pushed(desk: Desk) -> None:
    key_file = await desk.placed()
    async with both(desk, key_file):
        await settled(desk, (1, "confirmed"))
    await desk.done("remove", "shop", "alpha")
    async with desk.runtimes.run(MakerRuntime) as maker:  # which sweeps as it begins
        await maker.ready(within=60)
        assert await desk.logins() == [(1, "confirmed")]
    assert "unchanged" in await desk.done("push", "alpha")
    async with desk.runtimes.run(MakerRuntime) as maker:
        await maker.ready(within=60)
        await settled(desk, (0, "open"))
        assert not desk.server.accounts


@pytest.mark.timeout(240)
async def test_who_was_not_placed_is_granted_nothing(desk: Desk) -> None:
    key_file = await desk.placed()
    async with both(desk, key_file), desk.runtimes.run(Shop, "beta") as stranger:
        await until(lambda: stranger.state.cause is not None and stranger.state.cause.code == "not-needed", "it is refused", within=60)
        assert await desk.logins() == [(1, "confirmed")]
        code, _, err = await desk.run("place", "maker", "beta")
        assert (code, "thing.1 by maker@alpha" in err) == (Exit.REFUSED, True)
