"""What these tests share: a login in this test's vhost, and sessions that are closed whatever the test does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest_asyncio
from pydantic import SecretStr

from mesh_runtime.broker import BrokerAt, Session, open_session
from mesh_runtime.settings import Credentials
from mesh_runtime.testing.broker import PrivateBroker
from mesh_runtime.testing.management import Management

USER, PASSWORD = "alpha@test", "a:b/c@d?e#f%g&h"

Opener = Callable[..., Awaitable[Session]]


def begun(session: Session, call: "asyncio.Future[Any]") -> bool:
    """Whether the call's request has been sent; after a hitch of the machine it may have been answered in the same turn of the loop."""
    channel = session._topology._channel
    return call.done() or bool(channel is not None and channel._calls)


@pytest_asyncio.fixture
async def at(broker: PrivateBroker, management: Management, vhost: str) -> BrokerAt:
    """Where the broker is, for a login that may do everything in this test's vhost."""
    await management.put_user(USER, PASSWORD)
    await management.put_permissions(vhost, USER)
    return BrokerAt(
        addresses=(("127.0.0.1", broker.ports.amqps),),
        name=broker.name,
        vhost=vhost,
        heartbeat=15,
        ca_file=None,
        ca_pin=broker.ca.pin,
        credentials=lambda: Credentials(USER, SecretStr(PASSWORD)),
    )


@pytest_asyncio.fixture
async def opened(at: BrokerAt) -> AsyncIterator[Opener]:
    """Open a session, by default at ``at``; keywords replace parts of it."""
    sessions: list[Session] = []

    async def opening(**other: object) -> Session:
        session = await open_session(replace(at, **other), USER)  # type: ignore[arg-type]  # named as the fields are
        sessions.append(session)
        return session

    yield opening
    for session in sessions:
        await session.close()


@pytest_asyncio.fixture
async def session(opened: Opener) -> Session:
    """An open session."""
    return await opened()
