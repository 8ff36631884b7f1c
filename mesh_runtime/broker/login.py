"""Stage *login*: the AMQP handshake over a verified link, by aiormq's connection, and the broker's refusals in words.

The only place where aiormq's connection is made. It keeps channel 0: login, heartbeats, the polite close. It takes the link that the
stage *trust* made, so it dials nothing; and it is told to hold its tongue when its reader ends, since the link knows the reason first.

aiormq loses the broker's words when a vhost is refused (``InvalidFrameError``); the link has read them (``close_words``).
"""

import asyncio
from collections.abc import Callable
from typing import Any

import aiormq
import aiormq.exceptions
from aiormq.connection import TransportFactory
from yarl import URL

from mesh_runtime.broker.link import Link
from mesh_runtime.settings import Credentials
from mesh_runtime.startup import PACES, Stage, StageFault, blocked, waiting

#: Seconds that aiormq may take to put its tasks away once its transport is gone.
TIDY = 1.0


class _Given(TransportFactory):
    """Hands aiormq the link that stands already."""

    def __init__(self, link: Link, writer: asyncio.StreamWriter) -> None:
        self._given = link.reader, writer

    async def create(self, url: URL, **_: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return self._given


class PlainConnection(aiormq.Connection):
    """aiormq's connection, without its own recovery from what only the link knows, and with its tasks in sight."""

    def __init__(self, url: URL, factory: TransportFactory) -> None:
        super().__init__(url, transport_factory=factory)
        self.tasks: set[asyncio.Task[Any]] = set()
        self.on_reader_over: Callable[[], None] | None = None

    def create_task(self, coro: Any) -> Any:
        """Remember each task, so that ``put_away`` can wait for all of them."""
        made: Any = super().create_task(coro)
        self.tasks.add(made.task)
        made.task.add_done_callback(self.tasks.discard)
        return made

    def _on_reader_done(self, task: asyncio.Task[Any]) -> None:
        """Replaces aiormq's own, which logs a traceback for each loss and closes by a task that nobody owns."""
        if not task.cancelled():
            task.exception()
        if self.on_reader_over is not None:
            self.on_reader_over()

    async def put_away(self, reason: str) -> None:
        """Close it, politely where the link lives, and return once none of its tasks is left."""
        await self.close(ConnectionError(reason))
        if self.tasks:
            await asyncio.wait(set(self.tasks), timeout=TIDY)


async def log_in(
    link: Link, writer: asyncio.StreamWriter, credentials: Credentials, vhost: str, heartbeat: float, label: str
) -> PlainConnection:
    """A connection that is open; on any failure or cancellation the link is aborted and no task is left.

    ``heartbeat`` is in seconds (AMQP counts whole ones), ``label`` the name that the broker shows. Raises StageFault at stage *login*.
    """
    limit = PACES[Stage.LOGIN].deadline
    url = URL.build(
        scheme="amqps",
        user=credentials.username,
        password=credentials.password.get_secret_value(),
        host="broker",
        port=5671,
        path="/",
        query={"heartbeat": str(max(1, round(heartbeat))), "name": label},
    )
    connection = PlainConnection(url, _Given(link, writer))
    connection.vhost = vhost  # not by the URL, which cannot carry every name
    opening = asyncio.ensure_future(connection.connect())
    try:
        await asyncio.wait({opening}, timeout=limit)
        error = _error_of(opening)
        if opening.done() and error is None:
            link.session_stands = True
            return connection
        raise _fault(link, credentials.username, vhost, error)
    except BaseException:  # also a cancellation: neither a task nor the link is left
        link.abort("the login failed or was given up")
        opening.add_done_callback(_error_of)  # whatever it ends by is known then
        try:
            await asyncio.wait({opening}, timeout=TIDY)
        finally:  # told to stop once more, too
            opening.cancel()
            try:
                await connection.put_away("the login failed or was given up")
            finally:
                await link.gone(TIDY)
        raise


def _error_of(opening: "asyncio.Future[bool]") -> BaseException | None:
    """What it ended by, if it has ended. A cancellation that the client made itself is a fault, and never passed on as ours."""
    if not opening.done():
        return None
    return ConnectionAbortedError("the client gave it up") if opening.cancelled() else opening.exception()


def _fault(link: Link, user: str, vhost: str, error: BaseException | None) -> StageFault:
    at = link.address
    if error is None:
        words = f"{at} completed TLS and did not complete the login within {PACES[Stage.LOGIN].deadline:g} s"
        return waiting(Stage.LOGIN, "silent", words, at)
    if link.close_words is not None:
        return _refusal(link.close_words, at, user, vhost)
    match error:
        case aiormq.exceptions.ProbableAuthenticationError():
            return blocked(Stage.LOGIN, "login-refused", f"{at} refuses the login {user!r}: {error}", at)
        case aiormq.exceptions.AuthenticationError():
            return waiting(Stage.LOGIN, "no-mechanism", f"{at} offers no login by password (PLAIN): {error}", at)
    return waiting(Stage.LOGIN, "closed", link.over or f"{at}: {type(error).__name__}: {error}", at)


def _refusal(words: tuple[int, str], at: str, user: str, vhost: str) -> StageFault:
    """The broker's ``connection.close``. A limit is reached for the moment; its text also says *refused*, so it is looked at first."""
    code, text = words
    said = f"{at}: {code} {text}"
    if code == 403:
        return blocked(Stage.LOGIN, "login-refused", f"{at} refuses the login {user!r}: {code} {text}", at)
    if code == 530 and "limit" in text:
        return waiting(Stage.LOGIN, "connection-limit", said, at)
    if code == 530 and "not found" in text:
        return blocked(Stage.LOGIN, "no-vhost", f"{at} has no vhost {vhost!r}: {code} {text}", at)
    if code == 530 and "refused for user" in text:
        return blocked(Stage.LOGIN, "no-permission", f"{at}: {user!r} may not use the vhost {vhost!r}: {code} {text}", at)
    return waiting(Stage.LOGIN, f"closed-{code}", said, at)
