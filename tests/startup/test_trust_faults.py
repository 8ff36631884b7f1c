"""Each fault of trust has a cause of its own, ends nothing, costs no byte of AMQP, and is over once it is mended from outside."""

import asyncio
import ssl
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mesh_runtime.testing.ca import CertificateAuthority, Leaf, Wish
from mesh_runtime.testing.gate import Gate, Mode, serving
from mesh_runtime.testing.ports import free_port
from mesh_runtime.testing.processes import RuntimeProcess
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from mesh_runtime.trust import Authority
from tests.parts import Sage
from tests.startup.launching import Launcher

NAME = "broker.mesh"
HOUR = timedelta(hours=1)

#: The fault, what its certificate wishes, its code, its kind, and what its words must name.
FAULTS = {
    "wrong-name": (Wish(("other.mesh",)), "wrong-name", "blocked", (NAME, "other.mesh")),
    "cn-only": (Wish((), common_name=NAME), "no-names", "blocked", ("subject alternative names", NAME)),
    "expired": (Wish((NAME,), starts=-2 * HOUR, ends=-HOUR), "expired", "waiting", ("expired", "local time")),
    "not-yet-valid": (Wish((NAME,), starts=HOUR), "not-yet-valid", "waiting", ("not valid yet", "local time")),
    "wrong-pin": (Wish((NAME,)), "wrong-pin", "blocked", ("pin",)),
    "wrong-ca": (Wish((NAME,)), "wrong-ca", "blocked", ("expected CA",)),
}


def show(context: ssl.SSLContext, leaf: Leaf, ca: CertificateAuthority) -> None:
    """Replace the certificate that a gate shows from the next handshake on."""
    with tempfile.NamedTemporaryFile(suffix=".pem") as both:
        both.write(leaf.key + leaf.certificate + ca.certificate)
        both.flush()
        context.load_cert_chain(both.name)


@dataclass
class Faulty:
    """A runtime before a gate that shows a certificate with a fault."""

    fault: str
    gate: Gate
    context: ssl.SSLContext
    process: RuntimeProcess
    pid: int

    def heard(self) -> list[bytes]:
        """What the gate was sent after handshakes."""
        return [one.up.first for one in self.gate.connections if one.up.count]


@pytest.mark.timeout(90)  # six processes start at once, and who is blocked looks again after 10 to 15 s
async def test_each_trust_fault_has_its_own_cause_and_is_over_once_the_certificate_is_replaced(
    launch: Launcher, runtimes: Runtimes, tmp_path: Path
) -> None:
    ca, stranger = CertificateAuthority(), CertificateAuthority("a stranger's CA")
    faulty: list[Faulty] = []
    async with AsyncExitStack() as stack:
        for fault, (wish, _, _, _) in FAULTS.items():
            issuer = stranger if fault in ("wrong-pin", "wrong-ca") else ca
            context = serving(issuer.issue_as_wished(wish), issuer)
            gate = await stack.enter_async_context(Gate(runtimes.broker.ports.amqps, tls=context))
            trusted = {"MESH_CA_PIN": ca.pin}
            if fault == "wrong-ca":
                trusted = {"MESH_CA_PIN": "", "MESH_CA_FILE": str(ca.write(tmp_path / "ca.pem"))}
            process = await launch.on(runtimes, Sage, fault, MESH_BROKER=gate.address, **trusted)
            faulty.append(Faulty(fault, gate, context, process, process.pid))
        for one in faulty:
            _, code, state, named = FAULTS[one.fault]
            shown = await one.process.states.until_at("trust", state, code, within=15)
            for words in (*named, one.gate.address):
                assert words in shown["cause"]["text"], one.fault
        codes = [FAULTS[one.fault][1] for one in faulty]
        assert len(set(codes)) == len(codes), "each has its own"
        for one in faulty:
            assert (one.heard(), one.process.running) == ([], True), one.fault
            show(one.context, ca.issue(NAME), ca)
        for one in faulty:
            await one.process.states.until_ready(within=30)
            assert (one.process.pid, one.process.restarts) == (one.pid, 0)
            assert any(heard.startswith(b"AMQP") for heard in one.heard()), "the gate does see what is sent"
        for one in faulty:
            assert await one.process.stop() == 0


@pytest.mark.timeout(60)  # the certificate becomes valid 20 s later
async def test_b06_a_certificate_that_is_not_yet_valid_is_waited_for_and_both_times_are_named(launch: Launcher, runtimes: Runtimes) -> None:
    """B06: the clock of a joining machine is behind.

    Removal: mesh_runtime/trust/faults.py: return TrustFault("not-yet-valid", f"{address}: the certificate is not valid yet: {told.window(chain)}; {local}", blocked=False)
    Assertion: shown["cause"]["code"] == "not-yet-valid"
    """  # noqa: E501 - the line as it stands
    ca = CertificateAuthority()
    begins = (datetime.now(UTC) + timedelta(seconds=20)).replace(microsecond=0)  # a certificate knows whole seconds
    leaf = ca.issue_as_wished(Wish((NAME,), starts=begins - datetime.now(UTC)))
    async with Gate(runtimes.broker.ports.amqps, tls=serving(leaf, ca)) as gate:
        process = await launch.on(runtimes, Sage, MESH_BROKER=gate.address, MESH_CA_PIN=ca.pin)
        directory = process.states.directory
        shown = await process.states.until_at("trust", "waiting", within=10)
        assert shown["cause"]["code"] == "not-yet-valid"
        text = shown["cause"]["text"]
        assert begins.isoformat(timespec="seconds").replace("+00:00", "Z") in text
        local = datetime.fromisoformat(text.rpartition("the local time is ")[2].replace("Z", "+00:00"))
        assert abs((local - datetime.now(UTC)).total_seconds()) < 5
        assert not any(one.up.count for one in gate.connections), "no byte of AMQP"
        assert sorted(one.name for one in directory.iterdir()) == ["starts", "state"], "nothing was made or thrown away for it"
        await process.states.until_ready(within=20 + 15 + 5)
        assert datetime.now(UTC) >= begins
        assert process.restarts == 0
        assert await process.stop() == 0


def test_b06_what_our_own_issuer_issues_is_backdated(tmp_path: Path) -> None:
    """By five minutes at least, so that a clock that is behind by as much does no harm."""
    from cryptography import x509

    issued = Authority.create("a mesh").issue_server([NAME])
    issued.save(tmp_path / "leaf.pem", tmp_path / "leaf.key")
    leaf = x509.load_pem_x509_certificate((tmp_path / "leaf.pem").read_bytes())
    assert leaf.not_valid_before_utc <= datetime.now(UTC) - timedelta(minutes=5)


async def test_a_ca_file_that_is_not_there_yet_is_waited_for(launch: Launcher, runtimes: Runtimes, tmp_path: Path) -> None:
    file = tmp_path / "later" / "ca.pem"
    process = await launch.on(runtimes, Sage, MESH_CA_PIN="", MESH_CA_FILE=str(file))
    shown = await process.states.until_at("trust", "waiting", "no-ca", within=10)
    assert shown["cause"]["text"] == f"{file} is not there yet"
    assert shown["on"] == str(file)
    file.parent.mkdir()
    file.write_text("half a certif")
    shown = await process.states.until(lambda one: "is no CA file" in one["cause"]["text"], within=8)
    runtimes.broker.ca.write(file)
    await process.states.until_ready(within=15)
    assert (process.restarts, await process.stop()) == (0, 0)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"AMQP\x00\x00\x09\x01", b"220 mail.example ESMTP\r\n", b""])
async def test_a_server_that_speaks_no_tls_is_waited_for_at_trust(launch: Launcher, runtimes: Runtimes, answer: bytes) -> None:
    """A plain port, another protocol, or one who hangs up: it may be the broker's place all the same, later."""

    def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    port = free_port()
    server = await asyncio.start_server(impostor, "127.0.0.1", port)
    process = await launch.on(runtimes, Sage, MESH_BROKER=f"127.0.0.1:{port}")
    shown = await process.states.until_at("trust", "waiting", within=10)
    assert shown["cause"]["code"] in (("not-tls", "reset") if answer else ("reset",))
    assert f"127.0.0.1:{port}" in shown["cause"]["text"]
    server.close()
    await server.wait_closed()
    gate = Gate(runtimes.broker.ports.amqps)
    gate.port = port
    async with gate:
        await process.states.until_ready(within=15)
        assert (process.restarts, await process.stop()) == (0, 0)


async def test_a_tls_server_that_does_not_speak_amqp_is_waited_for_at_login(launch: Launcher, runtimes: Runtimes, tmp_path: Path) -> None:
    """What no list of causes knows gives its stage and *waiting*."""

    def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    ca = CertificateAuthority()
    port = free_port()
    server = await asyncio.start_server(impostor, "127.0.0.1", port, ssl=serving(ca.issue(NAME), ca))
    process = await launch.on(runtimes, Sage, MESH_BROKER=f"127.0.0.1:{port}", MESH_CA_PIN=ca.pin)
    shown = await process.states.until_at("login", "waiting", within=10)
    assert "does not speak AMQP" in shown["cause"]["text"]
    server.close()
    await server.wait_closed()
    assert (await process.states.until_at("reach", "waiting", "refused", within=15))["sessions"] == 0
    assert (process.restarts, await process.stop()) == (0, 0)


async def test_of_several_addresses_and_names_the_first_that_lives_is_taken(launch: Launcher, runtimes: Runtimes) -> None:
    """One is refused, one drops every SYN, one has no name; the last one is the broker."""
    dead = free_port()
    async with Gate(runtimes.broker.ports.amqps, mode=Mode.PASS) as gate:
        addresses = f"127.0.0.1:{dead},broker.mesh.invalid:5671,{gate.address}"
        process = await launch.on(runtimes, Sage, MESH_BROKER=addresses)
        began = time.monotonic()
        await process.states.until_ready(within=15)
        assert time.monotonic() - began < 14
        await gate.become(Mode.REFUSE)
        gate.cut()
        shown = await process.states.until_at("reach", "waiting", within=10)
        for address in (f"127.0.0.1:{dead}", gate.address, "broker.mesh.invalid"):
            assert address in shown["cause"]["text"], "each is named with what came of it"
        await gate.become(Mode.PASS)
        await process.states.until_ready(within=15)
        assert (process.restarts, await process.stop()) == (0, 0)
    await until(lambda: not process.running)
