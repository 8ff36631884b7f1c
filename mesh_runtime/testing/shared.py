"""What tests share: the one broker of a run, and a virtual host of it for each test; the one PostgreSQL, empty for each test."""

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from mesh_runtime.testing.broker import BrokerOptions, PrivateBroker
from mesh_runtime.testing.installation import Installation
from mesh_runtime.testing.management import Management
from mesh_runtime.testing.postgres import PostgresOptions, PrivatePostgres
from mesh_runtime.testing.waiting import until

_SHARED = pytest.StashKey[PrivateBroker]()
_SHARED_POSTGRES = pytest.StashKey[PrivatePostgres]()


def shared_pids(config: pytest.Config) -> set[int]:
    """Return the processes that outlive a test rightly: those of the shared servers."""
    servers = (config.stash.get(_SHARED, None), config.stash.get(_SHARED_POSTGRES, None))
    return {pid for server in servers if server for pid in server.pids}


def broker_installation(config: pytest.Config) -> Installation:
    """Return the RabbitMQ that the option `--broker-rootfs` chose. Raises NoBroker if it is not there."""
    rootfs: str | None = config.getoption("--broker-rootfs")
    installation = Installation(Path(rootfs) if rootfs else None)
    installation.check()
    return installation


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[PrivateBroker]:
    """The private TLS RabbitMQ of this test run, shared by its tests: who stops or bends it puts it back."""
    broker = PrivateBroker(BrokerOptions(broker_installation(request.config)))
    request.config.stash[_SHARED] = broker
    try:
        broker.start()
        yield broker
    finally:
        broker.dispose()


@pytest.fixture
def own_broker(request: pytest.FixtureRequest) -> Iterator[PrivateBroker]:
    """A broker for this test alone, not started yet: its ports are known, and nothing listens there."""
    broker = PrivateBroker(BrokerOptions(broker_installation(request.config)))
    try:
        yield broker
    finally:
        broker.dispose()


@pytest_asyncio.fixture
async def management(broker: PrivateBroker) -> AsyncIterator[Management]:
    """The shared broker's management API. A broker that an earlier test left stopped or frozen runs again."""
    broker.resume()
    if not broker.running:
        broker.start()
    async with Management(broker.management_url, *broker.admin) as management:
        yield management


@pytest_asyncio.fixture
async def vhost(broker: PrivateBroker, management: Management) -> AsyncIterator[str]:
    """The name of a virtual host for this test alone; a connection that is still open in it afterwards fails the test."""
    name = f"test-{secrets.token_hex(6)}"
    await management.put_vhost(name)
    yield name
    if not broker.running:
        broker.start()

    async def all_closed() -> bool:
        return not await management.connections(name)

    try:
        await until(all_closed, within=10.0)
    except AssertionError:
        left = [f"{row['name']} of {row.get('user')}" for row in await management.connections(name)]
        pytest.fail(f"left open at the broker: {', '.join(left)}", pytrace=False)
    finally:
        await management.delete_vhost(name)


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[PrivatePostgres]:
    """The private PostgreSQL of this test run. A test asks for `postgres`, which gives it empty."""
    postgres = PrivatePostgres()
    request.config.stash[_SHARED_POSTGRES] = postgres
    try:
        postgres.start()
        yield postgres
    finally:
        postgres.dispose()


@pytest.fixture
def postgres(postgres_server: PrivatePostgres) -> Iterator[PrivatePostgres]:
    """The shared PostgreSQL, running, and emptied after the test: who stops or bends it need not put it back."""
    yield postgres_server
    postgres_server.resume()
    if not postgres_server.running:
        postgres_server.start()
    postgres_server.clean()


@pytest.fixture
def own_postgres() -> Iterator[PrivatePostgres]:
    """A PostgreSQL for this test alone, durable, not started yet: its port is known, and nothing listens there."""
    postgres = PrivatePostgres(PostgresOptions(durable=True))
    try:
        yield postgres
    finally:
        postgres.dispose()
