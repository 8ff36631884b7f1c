"""Stage *trust*: TLS over a socket that stands, verified in full, before a single byte of AMQP is sent.

With a pin there are two handshakes, one after the other and never two sockets at once: the first trusts nothing, reads the broker's chain
and hangs up; the second is verified by OpenSSL under the CA that the pin names. asyncio gives nobody a connection whose handshake has not
ended, and a cancelled one can live on unseen; so TCP's own transport is made first, is ours all the time, and is aborted whatever
happens.
"""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import cast

from mesh_runtime.broker.link import Link
from mesh_runtime.broker.reaching import spell
from mesh_runtime.broker.resolving import Target
from mesh_runtime.settings import NotThereYet
from mesh_runtime.startup import PACES, Stage, StageFault, blocked, waiting
from mesh_runtime.trust import ca_for_pin, chain_of, client_context, fault_of, read_ca, reading_context

#: Seconds that the polite end of TLS may take before the socket is closed all the same.
SHUTDOWN = 0.5


class _Quiet(asyncio.Protocol):
    """Holds a connection between TCP and TLS. Reads nothing: what is sent before the handshake belongs to the handshake."""

    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.pause_reading()


async def secure(
    made: socket.socket, target: Target, name: str, ca_file: Path | None, ca_pin: str | None
) -> tuple[Link, asyncio.StreamWriter]:
    """A link under TLS to whoever ``made`` leads to, proved to be ``name`` under the CA of the file or the pin.

    ``made`` is taken: it is closed unless its link is returned. Raises StageFault at stage *trust*; one deadline bounds all of it.
    """
    handshakes = _Handshakes(target, name)
    try:
        async with asyncio.timeout(None) as limit:
            limit.reschedule(asyncio.get_running_loop().time() + PACES[Stage.TRUST].deadline)
            if ca_pin is not None:
                link, writer = await handshakes.over(made, reading_context())
                handshakes.chain = await _chain_and_hang_up(link, writer)
                context = client_context(ca_for_pin(handshakes.chain, ca_pin))
                made = await handshakes.dial()
            else:
                context = _context_of(ca_file)
            return await handshakes.over(made, context)
    except NotThereYet as missing:
        made.close()
        raise waiting(Stage.TRUST, "no-ca", str(missing), str(missing.path)) from None
    except (OSError, ValueError) as error:
        made.close()
        raise await handshakes.fault(error) from error
    except BaseException:  # also a cancellation: the socket was taken
        made.close()
        raise


def _context_of(ca_file: Path | None) -> ssl.SSLContext:
    if ca_file is None:
        raise ValueError("neither a CA file nor a pin was given")
    return client_context(read_ca(ca_file))


async def _chain_and_hang_up(link: Link, writer: asyncio.StreamWriter) -> list[bytes]:
    try:
        return chain_of(writer.get_extra_info("ssl_object"))
    finally:
        link.abort("its chain was read")
        await link.gone(PACES[Stage.TRUST].deadline)


class _Handshakes:
    def __init__(self, target: Target, name: str) -> None:
        self.target = target
        self.name = name
        self.address = spell(target[1])
        self.chain: list[bytes] = []

    async def dial(self) -> socket.socket:
        """A second socket to the same address."""
        made = socket.socket(self.target[0], socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(made, self.target[1])
        except BaseException:  # also a cancellation: nobody has the socket yet
            made.close()
            raise
        return made

    async def over(self, made: socket.socket, context: ssl.SSLContext) -> tuple[Link, asyncio.StreamWriter]:
        """TLS over this socket, which is closed if it fails or is cancelled."""
        loop = asyncio.get_running_loop()
        quiet, link = _Quiet(), Link(loop, self.address)
        limit = PACES[Stage.TRUST].deadline
        try:
            raw, _ = await loop.create_connection(lambda: quiet, sock=made)
            tls = await loop.start_tls(
                raw, link, context, server_hostname=self.name, ssl_handshake_timeout=2 * limit, ssl_shutdown_timeout=SHUTDOWN
            )
        except BaseException:  # also a cancellation, which asyncio's own handshake would outlive
            if quiet.transport is not None:
                quiet.transport.abort()
            else:
                made.close()
            raise
        return link, link.attach(raw, cast(asyncio.Transport, tls))

    async def fault(self, error: OSError | ValueError) -> StageFault:
        """The words for it. A refused certificate is read once more where it is not known yet, so that its names and times can be told."""
        if not isinstance(error, OSError):
            return waiting(Stage.TRUST, "unknown", f"{self.address}: {error}", self.address)
        if isinstance(error, ssl.SSLCertVerificationError) and not self.chain:
            try:
                async with asyncio.timeout(PACES[Stage.TRUST].deadline / 2):
                    made = await self.dial()
                    self.chain = await _chain_and_hang_up(*await self.over(made, reading_context()))
            except OSError:
                self.chain = []
        found = fault_of(error, name=self.name, address=self.address, chain=self.chain)
        return (blocked if found.blocked else waiting)(Stage.TRUST, found.code, found.text, self.address)
