"""Each failure of a real handshake is told by its own code, in words, and is blocked only where somebody must act."""

import asyncio
import socket
import ssl
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mesh_runtime.settings import NotThereYet
from mesh_runtime.trust import Authority, PinMismatch, TrustFault, client_context, fault_of, read_ca
from tests.trust.conftest import NAME, Accepted, listener, presented_to_anybody, server_context
from tests.trust.minting import careless_ca


async def fault(
    context: ssl.SSLContext | None, ca: bytes, *, name: str = NAME, accepted: Accepted | None = None, limit: float = 5
) -> tuple[TrustFault, bytes]:
    """What a handshake with this server under this CA comes to, and what the server heard of the protocol above."""
    async with listener(context, accepted) as server:
        address = f"127.0.0.1:{server.port}"
        with pytest.raises(OSError) as caught:  # noqa: PT011  (which one is what is tested)
            async with asyncio.timeout(limit):
                await asyncio.open_connection("127.0.0.1", server.port, ssl=client_context(ca), server_hostname=name)
        chain = await presented_to_anybody(server.port, name) if isinstance(caught.value, ssl.SSLCertVerificationError) else []
        found = fault_of(caught.value, name=name, address=address, chain=chain)
        without = fault_of(caught.value, name=name, address=address)
    # What the chain adds is words; only that the certificate names nobody at all can be seen in nothing else.
    assert (without.code, without.blocked) == ("wrong-name" if found.code == "no-names" else found.code, found.blocked)
    assert address in found.text
    assert address in without.text
    return found, server.heard


async def test_a_wrong_ca_is_blocked_and_names_the_issuer(tmp_path: Path, authority: Authority) -> None:
    other = Authority.create("other mesh")
    for more in ([], [other.pem]):
        found, heard = await fault(server_context(tmp_path, other.issue_server([NAME]), *more), authority.der)
        assert (found.code, found.blocked, heard) == ("wrong-ca", True, b"")
        assert "CN=other mesh" in found.text


async def test_a_wrong_name_is_blocked_and_names_both(tmp_path: Path, authority: Authority) -> None:
    found, heard = await fault(server_context(tmp_path, authority.issue_server(["other.mesh", "10.0.0.9"])), authority.der)
    assert (found.code, found.blocked, heard) == ("wrong-name", True, b"")
    assert NAME in found.text
    assert "other.mesh, 10.0.0.9" in found.text


async def test_a_wrong_address_as_the_name_is_a_wrong_name_too(tmp_path: Path, authority: Authority) -> None:
    found, _ = await fault(server_context(tmp_path, authority.issue_server([NAME])), authority.der, name="10.0.0.1")
    assert (found.code, found.blocked) == ("wrong-name", True)


async def test_a_common_name_alone_does_not_count(tmp_path: Path) -> None:
    """The line whose removal makes this fail: `context.hostname_checks_common_name = False`."""
    ca = careless_ca(strict=True)
    found, _ = await fault(server_context(tmp_path, ca.leaf([], authority_key_identifier=True, common_name=NAME)), ca.der)
    assert (found.code, found.blocked) == ("no-names", True)
    assert "common name does not count" in found.text


async def test_not_yet_valid_waits_and_names_the_window_and_the_local_time(tmp_path: Path, authority: Authority) -> None:
    """B06: a clock that is behind is told as such."""
    begins = datetime.now(UTC) + timedelta(hours=1)
    issued = authority.issue_server([NAME], starts=timedelta(hours=1), lifetime=timedelta(days=1))
    found, heard = await fault(server_context(tmp_path, issued, authority.pem), authority.der)
    assert (found.code, found.blocked, heard) == ("not-yet-valid", False, b"")
    assert begins.strftime("%Y-%m-%dT%H:") in found.text
    assert (begins + timedelta(hours=23)).strftime("%Y-%m-%dT%H:") in found.text
    assert f"the local time is {datetime.now(UTC):%Y-%m-%dT%H:}" in found.text


async def test_expired_waits_for_its_renewal_and_names_the_window_and_the_local_time(tmp_path: Path, authority: Authority) -> None:
    issued = authority.issue_server([NAME], starts=timedelta(days=-3), lifetime=timedelta(days=-1))
    found, heard = await fault(server_context(tmp_path, issued, authority.pem), authority.der)
    assert (found.code, found.blocked, heard) == ("expired", False, b"")
    assert f"to {datetime.now(UTC) - timedelta(days=1):%Y-%m-%dT}" in found.text
    assert "the local time is" in found.text


async def test_a_certificate_that_fails_strict_checks_waits_with_openssls_words(tmp_path: Path) -> None:
    ca = careless_ca(strict=True)
    found, _ = await fault(server_context(tmp_path, ca.leaf([NAME])), ca.der)
    assert (found.code, found.blocked) == ("bad-certificate", False)
    assert "Missing Authority Key Identifier" in found.text


async def test_a_plaintext_port_waits_and_says_so(authority: Authority) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"AMQP\x00\x00\x09\x01")
        await writer.drain()

    found, _ = await fault(None, authority.der, accepted=plain)
    assert (found.code, found.blocked) == ("not-tls", False)
    assert "plaintext" in found.text


async def test_a_silent_port_waits(authority: Authority) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass

    found, _ = await fault(None, authority.der, accepted=silent, limit=0.2)
    assert (found.code, found.blocked) == ("silent", False)


def test_asyncios_own_limit_on_a_handshake_is_silence_too() -> None:
    error = ConnectionAbortedError("SSL handshake is taking longer than 5 seconds: aborting the connection")
    assert fault_of(error, name=NAME, address="a:1").code == "silent"


@pytest.mark.parametrize("abruptly", [True, False])
async def test_a_connection_closed_in_the_handshake_waits_and_has_words_though_the_error_has_none(
    authority: Authority, abruptly: bool
) -> None:
    async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        if abruptly:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    found, _ = await fault(None, authority.der, accepted=closes)
    assert (found.code, found.blocked) == ("reset", False)
    assert "closed the connection" in found.text


async def test_an_alert_waits_and_names_it(authority: Authority) -> None:
    async def alerts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x28")  # RFC 8446, 6.2: fatal, handshake_failure
        await writer.drain()

    found, _ = await fault(None, authority.der, accepted=alerts)
    assert (found.code, found.blocked) == ("alert", False)
    assert "HANDSHAKE_FAILURE" in found.text


def test_nothing_that_verification_rests_on_is_lowered(authority: Authority) -> None:
    context = client_context(authority.der)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert not context.hostname_checks_common_name
    assert context.verify_flags & ssl.VERIFY_X509_STRICT
    assert [each["subject"] for each in context.get_ca_certs()] == [((("commonName", "mesh test"),),)]


def test_a_pin_mismatch_is_blocked() -> None:
    found = fault_of(PinMismatch("no CA for the pin"), name=NAME, address="a:1")
    assert (found.code, found.blocked, found.text) == ("wrong-pin", True, "a:1: no CA for the pin")


def test_a_librarys_wrapper_is_looked_through() -> None:
    wrapper = ConnectionError("amqps://…")
    wrapper.__cause__ = PinMismatch("no CA for the pin")
    assert fault_of(wrapper, name=NAME, address="a:1").code == "wrong-pin"


@pytest.mark.parametrize("error", [OSError(), ConnectionError(), ssl.SSLError(), ConnectionResetError(), OSError(113, "No route to host")])
def test_what_is_unknown_waits_and_no_text_is_empty(error: OSError) -> None:
    found = fault_of(error, name=NAME, address="a:1")
    assert not found.blocked
    assert len(found.text.removeprefix("a:1").strip(": ")) > 3


@pytest.mark.parametrize("content", [b"rubbish", b"-----BEGIN CERTIFICATE-----\nrubbish\n-----END CERTIFICATE-----\n", b"\xff\xfe"])
def test_a_ca_file_that_holds_no_certificate_is_not_there_yet(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ca.pem"
    with pytest.raises(NotThereYet, match="is not there yet"):
        read_ca(path)
    path.write_bytes(content)
    with pytest.raises(NotThereYet, match="no CA file"):
        read_ca(path)


def test_a_ca_file_is_read_afresh(tmp_path: Path, authority: Authority) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes(Authority.create("other mesh").pem)
    read_ca(path)
    path.write_bytes(authority.pem)
    assert read_ca(path) == authority.pem
