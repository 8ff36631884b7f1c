"""Climbs from an address to a session: the stages *resolve*, *reach*, *trust* and *login*, one attempt at each.

An attempt ends in a session or in one StageFault that says at which stage, why, and whether time mends it. Everything that can change from
outside (addresses of names, CA, credentials) is read afresh for each attempt. It tries nothing again: pace is ``startup``'s, order is
``runtime``'s.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mesh_runtime.broker.login import log_in
from mesh_runtime.broker.reaching import reach
from mesh_runtime.broker.resolving import Target, resolve_all
from mesh_runtime.broker.securing import secure
from mesh_runtime.broker.session import Session
from mesh_runtime.settings import Credentials, NotThereYet
from mesh_runtime.startup import Stage, waiting


@dataclass(frozen=True, slots=True)
class BrokerAt:
    """Where the broker is and who it must prove to be. Address to dial and name to verify are two things."""

    addresses: tuple[tuple[str, int], ...]
    """Hosts (names or IP addresses) and ports, the preferred first."""
    name: str
    """What its certificate must be for."""
    vhost: str
    heartbeat: float
    """Seconds; AMQP counts whole ones, at least one."""
    ca_file: Path | None
    ca_pin: str | None
    """SHA-256 of the CA's SubjectPublicKeyInfo, 64 hex digits. With a pin the file is not read."""
    credentials: Callable[[], Credentials]
    """Read for each attempt; raises NotThereYet."""


async def resolve(at: BrokerAt) -> list[Target]:
    """All addresses to dial, in order; raises StageFault (resolve)."""
    return (await resolve_all(at.addresses)).targets


async def open_session(
    at: BrokerAt,
    identity: str,
    climbing: Callable[[Stage], None] = lambda _: None,
    draw: Callable[[], str] = lambda: secrets.token_hex(16),
) -> Session:
    """Open a session as ``identity`` (the connection's name at the broker), calling ``climbing`` as each stage is entered.

    ``draw`` gives the session's id. Raises StageFault; then, or if it is cancelled, no task and no socket is left.
    """
    climbing(Stage.RESOLVE)
    resolved = await resolve_all(at.addresses)
    climbing(Stage.REACH)
    made, target = await reach(resolved.targets, resolved.missing)
    try:
        climbing(Stage.TRUST)
    except BaseException:  # whatever a caller's callback raised: the socket is ours until it is taken
        made.close()
        raise
    link, writer = await secure(made, target, at.name, at.ca_file, at.ca_pin)
    try:
        climbing(Stage.LOGIN)
        credentials = at.credentials()
        connection = await log_in(link, writer, credentials, at.vhost, at.heartbeat, identity)
    except NotThereYet as missing:
        link.abort("no credentials")
        raise waiting(Stage.LOGIN, "no-credentials", str(missing), str(missing.path)) from None
    except BaseException:  # also a cancellation: the link is not left behind
        link.abort("the login was given up")
        raise
    return Session(link, connection, identity, draw())
