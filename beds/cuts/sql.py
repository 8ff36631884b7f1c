"""A gate between a client and PostgreSQL that sees each round trip: a log-in, a statement on its way, the server's word that it is done.

A client's messages up to ``Sync`` (or one simple query) are one step; they are held until they are whole. Of what the server sends only
*ready for query* is a step: no client goes on before it. Without TLS. Source: PostgreSQL documentation, chapter 55 *Frontend/Backend
Protocol*.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from beds.cuts.steps import CONSUMER, PROVISIONER, SERVER, Watch, named
from mesh_runtime.testing.gate import Connection, Gate

_REQUESTS = (80877103, 80877104, 80877102)
"""Instead of a start-up: for TLS, for GSS encryption, to cancel. The first two are answered by one byte."""

#: What the sessions of the provisioner call themselves begins so; all others are the consumer's.
_OURS = "mesh "


@dataclass
class Session:
    """One connection: whose it is, and what it is at."""

    client: str = ""
    up: bytes = b""
    down: bytes = b""
    started: bool = False
    bare: int = 0
    """Answers of one byte that the server owes."""
    unit: bytes = b""
    statement: str = ""
    doing: str = ""
    """What the server was sent last."""
    dead: bool = False
    of_load: bool = False


class SqlGate(Gate):
    """Stands between the server and whoever logs in to it."""

    def __init__(self, target: int, watch: Watch) -> None:
        super().__init__(target)
        self._watch = watch
        self._sessions: dict[Connection, Session] = {}

    async def parts(self, connection: Connection, upward: bool, data: bytes) -> AsyncIterator[bytes]:
        """Message by message."""
        session = self._sessions.setdefault(connection, Session())
        if upward:
            session.up += data
        else:
            session.down += data
        for whole, name in _sent(session) if upward else _answered(session):
            if name and not session.of_load and not await self._watch.passes((session.client, SERVER), name):
                session.dead = True
            if session.dead:
                return
            yield whole


def _sent(session: Session) -> Iterator[tuple[bytes, str]]:
    """What the client sent, as far as it is whole, and the name of the step that it is, if it is one."""
    while not session.started:
        if len(session.up) < 8 or len(session.up) < (size := int.from_bytes(session.up[:4], "big")):
            return
        start, session.up = session.up[:size], session.up[size:]
        code = int.from_bytes(start[4:8], "big")
        if code in _REQUESTS:
            session.bare += code != _REQUESTS[2]
            yield start, ""
            continue
        words = start[8:].split(b"\0")
        application = dict(zip(words[::2], words[1::2], strict=False)).get(b"application_name", b"").decode()
        session.client = PROVISIONER if application.startswith(_OURS) else CONSUMER
        session.started, session.doing = True, f"log in{' to try' if application == 'mesh trial' else ''}"
        yield start, session.doing
    while (message := _message(session.up)) is not None:
        session.up = session.up[len(message) :]
        session.unit += message
        if message[:1] == b"P":
            session.statement = message[5:].split(b"\0")[1].decode(errors="replace")
        elif message[:1] == b"Q":
            session.statement = message[5:-1].decode(errors="replace")
        if message[:1] in (b"S", b"Q"):
            unit, session.unit = session.unit, b""
            # The consumer's pool tries each connection with an empty statement before a tell's: from then on it is the load's.
            session.of_load |= session.client == CONSUMER and not session.statement
            session.doing = named(session.statement)
            yield unit, session.doing
        elif message[:1] in (b"p", b"X"):
            unit, session.unit = session.unit, b""
            yield unit, ""


def _answered(session: Session) -> Iterator[tuple[bytes, str]]:
    while session.bare and session.down:
        byte, session.down = session.down[:1], session.down[1:]
        session.bare -= 1
        yield byte, ""
    while (message := _message(session.down)) is not None:
        session.down = session.down[len(message) :]
        yield message, f"done: {session.doing}" if message[:1] == b"Z" else ""


def _message(data: bytes) -> bytes | None:
    if len(data) < 5 or len(data) < (size := 1 + int.from_bytes(data[1:5], "big")):
        return None
    return data[:size]
