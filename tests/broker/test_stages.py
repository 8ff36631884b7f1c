"""Each fault on the way to a session has its own stage and cause, waiting or blocked, in words that are never empty."""

import asyncio
import errno
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from mesh_runtime.broker import BrokerAt, open_session, resolve, securing
from mesh_runtime.broker import reaching as reaching_module
from mesh_runtime.broker import resolving as resolving_module
from mesh_runtime.broker.reaching import reach
from mesh_runtime.settings import Credentials, NotThereYet
from mesh_runtime.startup import PACES, Kind, Stage, StageFault
from mesh_runtime.startup.pace import Pace
from mesh_runtime.testing.broker import PrivateBroker
from mesh_runtime.testing.ca import CertificateAuthority, Wish
from mesh_runtime.testing.gate import Gate, Mode, serving
from mesh_runtime.testing.management import Management
from mesh_runtime.testing.ports import free_port
from mesh_runtime.testing.waiting import until
from tests.broker.conftest import PASSWORD, USER


async def fault_of(at: BrokerAt, climbing: Any = lambda _: None) -> StageFault:
    with pytest.raises(StageFault) as caught:
        await open_session(at, USER, climbing)
    assert caught.value.cause.text.strip()
    return caught.value


def dialled(at: BrokerAt, *ports: int) -> BrokerAt:
    return replace(at, addresses=tuple(("127.0.0.1", port) for port in ports))


async def test_the_stages_are_entered_in_order(at: BrokerAt) -> None:
    entered: list[Stage] = []
    session = await open_session(at, USER, entered.append)
    assert entered == [Stage.RESOLVE, Stage.REACH, Stage.TRUST, Stage.LOGIN]
    assert len(session.id) == 32
    assert int(session.id, 16) >= 0
    await session.close()


class TestResolve:
    async def test_an_unknown_name_waits_at_resolve_and_is_named(self, at: BrokerAt) -> None:
        fault = await fault_of(replace(at, addresses=(("no-such-host.invalid", 5671),)))
        assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.RESOLVE, Kind.WAITING, "unknown-name")
        assert "no-such-host.invalid" in fault.cause.text

    async def test_one_name_that_is_unknown_does_not_hide_the_other(self, at: BrokerAt) -> None:
        targets = await resolve(replace(at, addresses=(("no-such-host.invalid", 1), ("127.0.0.1", 2))))
        assert targets == [(socket.AF_INET, ("127.0.0.1", 2))]

    async def test_a_name_server_that_is_silent_neither_delays_cancellation_nor_costs_a_thread_each_attempt(
        self, at: BrokerAt, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answer = threading.Event()

        def silent(*_: object, **__: object) -> list[Any]:
            answer.wait(20)
            raise socket.gaierror(socket.EAI_AGAIN, "try again")

        monkeypatch.setattr(socket, "getaddrinfo", silent)
        monkeypatch.setitem(PACES, Stage.RESOLVE, Pace(deadline=0.3, first=0.1, cap=0.1))
        silent_at = replace(at, addresses=(("slow.example", 5671),))
        try:
            for _ in range(3):
                assert (await fault_of(silent_at)).cause.code == "timeout"
            assert sum(thread.name == "resolve slow.example" for thread in threading.enumerate()) == 1
            began = time.monotonic()
            waiting = asyncio.ensure_future(open_session(silent_at, USER))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert time.monotonic() - began < 0.2
        finally:
            answer.set()
        await until(lambda: not resolving_module._under_way)

    async def test_without_a_thread_to_spare_it_resolves_once_it_has_one(self, at: BrokerAt, monkeypatch: pytest.MonkeyPatch) -> None:
        def none_left(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setitem(PACES, Stage.RESOLVE, Pace(deadline=2.0, first=0.1, cap=0.1))
        named = replace(at, addresses=(("localhost", 5671),))
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(threading.Thread, "start", none_left)
            with pytest.raises(StageFault, match="can't start new thread"):
                await resolve(named)
        assert await resolve(named)


def open_sockets() -> int:
    """How many sockets this process holds."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            count += str(descriptor.readlink()).startswith("socket:")
    return count


@contextmanager
def deaf_listener() -> Iterator[socket.socket]:
    """A port whose queue of connections is full: the kernel drops every further SYN, as a route that is not there would."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(2)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        try:
            yield listener
        finally:
            for filler in fillers:
                filler.close()


class TestReach:
    async def test_a_refused_port_is_told_with_its_address(self, at: BrokerAt) -> None:
        port = free_port()
        fault = await fault_of(dialled(at, port))
        assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.REACH, Kind.WAITING, "refused")
        assert fault.cause.text == f"127.0.0.1:{port}: Connection refused"

    async def test_every_address_is_tried_before_it_fails_and_each_is_named(self, at: BrokerAt) -> None:
        ports = free_port(), free_port()
        fault = await fault_of(dialled(at, *ports))
        assert all(f"127.0.0.1:{port}: Connection refused" in fault.cause.text for port in ports)

    async def test_an_address_that_refuses_does_not_keep_the_next_from_being_reached(self, at: BrokerAt) -> None:
        took = []
        for _ in range(3):
            began = time.monotonic()
            session = await open_session(dialled(at, free_port(), at.addresses[0][1]), USER)
            took.append(time.monotonic() - began)
            await session.close()
        assert min(took) < 1.0

    async def test_an_address_that_is_silent_does_not_keep_the_next_from_being_reached(self, at: BrokerAt) -> None:
        with deaf_listener() as deaf:
            session = await open_session(dialled(at, deaf.getsockname()[1], at.addresses[0][1]), USER)
        assert session.address == f"127.0.0.1:{at.addresses[0][1]}"
        await session.close()

    async def test_a_dropped_syn_is_followed_by_a_fresh_one_each_second(self) -> None:
        with deaf_listener() as deaf:
            reaching = asyncio.ensure_future(reach([(socket.AF_INET, deaf.getsockname())], []))
            # The kernel itself sends the first SYN again after 1, 3 and 7 seconds (newer kernels: each second at first).
            done, _ = await asyncio.wait({reaching}, timeout=3.3)
            assert not done
            opened = time.monotonic()
            accepted = [deaf.accept()[0], deaf.accept()[0]]
            made, _ = await reaching
            assert time.monotonic() - opened < 2.5
            made.close()
            for each in accepted:
                each.close()

    async def test_a_port_that_refuses_is_asked_again_while_another_is_silent(self, at: BrokerAt) -> None:
        port = free_port()
        with deaf_listener() as deaf, socket.socket() as late:
            targets = [(socket.AF_INET, deaf.getsockname()), (socket.AF_INET, ("127.0.0.1", port))]
            reaching = asyncio.ensure_future(reach(targets, []))
            await asyncio.wait({reaching}, timeout=0.3)
            late.bind(("127.0.0.1", port))
            late.listen()
            async with asyncio.timeout(8):
                made, target = await reaching
            assert target == targets[1]
            made.close()

    async def test_fresh_attempts_go_on_until_the_deadline_and_three_are_open_at_most(self, monkeypatch: pytest.MonkeyPatch) -> None:
        alive: set[object] = set()
        counts: list[int] = []

        async def silent(_: object) -> socket.socket:
            alive.add(asyncio.current_task())
            counts.append(len(alive))
            try:
                await asyncio.Event().wait()
                raise AssertionError("nobody sets it")
            finally:
                alive.discard(asyncio.current_task())

        monkeypatch.setattr(reaching_module, "AGAIN", 0.05)
        monkeypatch.setattr(reaching_module, "_connect", silent)
        with pytest.raises(StageFault):
            await reach([(socket.AF_INET, ("192.0.2.1", 5671))], [], deadline=2.0)
        assert len(counts) >= 6
        assert max(counts) == 3
        assert not alive

    async def test_silence_ends_at_the_deadline_in_words(self) -> None:
        with deaf_listener() as deaf, pytest.raises(StageFault) as caught:
            await reach([(socket.AF_INET, deaf.getsockname())], ["nowhere.example: unknown"], deadline=0.3)
        assert caught.value.cause.code == "silent"
        assert "did not answer within 0.3 s" in caught.value.cause.text
        assert "nowhere.example" in caught.value.cause.text

    async def test_a_host_without_a_route_is_told_as_such(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def no_route(*_: object) -> None:
            raise OSError(errno.EHOSTUNREACH, "No route to host")

        monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", no_route)
        with pytest.raises(StageFault) as caught:
            await reach([(socket.AF_INET, ("192.0.2.1", 5671))], [])
        assert caught.value.cause.code == "no-route"


class TestTrust:
    async def expect(self, at: BrokerAt, gate: Gate, code: str, kind: Kind) -> StageFault:
        """The fault at *trust*, with no byte of AMQP sent: the gate ends TLS and sees what the client says in it."""
        fault = await fault_of(dialled(at, gate.port))
        assert (fault.stage, fault.cause.code, fault.cause.kind) == (Stage.TRUST, code, kind), fault
        assert f"127.0.0.1:{gate.port}" in fault.cause.text
        await until(lambda: not gate.open_connections)
        assert sum(connection.up.count for connection in gate.connections) == 0
        return fault

    @pytest.mark.parametrize("by_pin", [True, False], ids=["pin", "file"])
    @pytest.mark.parametrize(
        ("wish", "code", "kind", "words"),
        [
            (Wish(("other.mesh",)), "wrong-name", Kind.BLOCKED, "other.mesh"),
            (Wish((), common_name="broker.mesh"), "no-names", Kind.BLOCKED, "broker.mesh"),
            (Wish(("broker.mesh",), ends=timedelta(minutes=-1)), "expired", Kind.WAITING, "local time"),
            (Wish(("broker.mesh",), starts=timedelta(hours=1)), "not-yet-valid", Kind.WAITING, "valid from"),
        ],
        ids=["wrong-name", "common-name-only", "expired", "not-yet-valid"],
    )
    async def test_a_certificate_that_is_wrong(
        self, at: BrokerAt, broker: PrivateBroker, tmp_path: Path, by_pin: bool, wish: Wish, code: str, kind: Kind, words: str
    ) -> None:
        if not by_pin:
            at = replace(at, ca_pin=None, ca_file=broker.ca.write(tmp_path / "ca.pem"))
        async with Gate(broker.ports.amqps, tls=serving(broker.ca.issue_as_wished(wish), broker.ca)) as gate:
            fault = await self.expect(at, gate, code, kind)
        assert words in fault.cause.text

    async def test_another_ca_under_the_pin(self, at: BrokerAt, broker: PrivateBroker) -> None:
        other = CertificateAuthority()
        async with Gate(broker.ports.amqps, tls=serving(other.issue(broker.name), other)) as gate:
            await self.expect(at, gate, "wrong-pin", Kind.BLOCKED)

    async def test_another_ca_than_the_file(self, at: BrokerAt, broker: PrivateBroker, tmp_path: Path) -> None:
        other = CertificateAuthority()
        at = replace(at, ca_pin=None, ca_file=broker.ca.write(tmp_path / "ca.pem"))
        async with Gate(broker.ports.amqps, tls=serving(other.issue(broker.name), other)) as gate:
            await self.expect(at, gate, "wrong-ca", Kind.BLOCKED)

    async def test_a_ca_file_is_waited_for_and_read_afresh(self, at: BrokerAt, broker: PrivateBroker, tmp_path: Path) -> None:
        at = replace(at, ca_pin=None, ca_file=tmp_path / "ca.pem")
        fault = await fault_of(at)
        assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.TRUST, Kind.WAITING, "no-ca")
        assert str(tmp_path / "ca.pem") in fault.cause.text
        broker.ca.write(tmp_path / "ca.pem")
        await (await open_session(at, USER)).close()

    async def test_a_silent_port_ends_at_the_deadline_and_never_holds_two_sockets(self, at: BrokerAt) -> None:
        most = 0

        async def watch(gate: Gate) -> None:
            nonlocal most
            while True:
                most = max(most, len(gate.open_connections))
                await asyncio.sleep(0.005)

        async with Gate(at.addresses[0][1], mode=Mode.SILENT) as gate:
            watching = asyncio.ensure_future(watch(gate))
            began = time.monotonic()
            for _ in range(2):
                fault = await fault_of(dialled(at, gate.port))
                assert (fault.stage, fault.cause.code, fault.cause.kind) == (Stage.TRUST, "silent", Kind.WAITING)
            assert time.monotonic() - began < 2 * PACES[Stage.TRUST].deadline + 1.9
            watching.cancel()
        assert most == 1

    async def test_with_a_pin_the_first_handshake_is_hung_up_before_the_second_is_dialled(
        self, at: BrokerAt, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[int] = []
        dial = securing._Handshakes.dial

        async def counted(handshakes: securing._Handshakes) -> socket.socket:
            seen.append(open_sockets())
            return await dial(handshakes)

        monkeypatch.setattr(securing._Handshakes, "dial", counted)
        before = open_sockets()
        session = await open_session(at, USER)
        assert seen == [before]
        assert open_sockets() == before + 1
        await session.close()

    async def test_a_port_that_closes_is_told_in_words_although_the_error_has_none(self, at: BrokerAt) -> None:
        async with Gate(at.addresses[0][1], mode=Mode.CLOSE) as gate:
            fault = await fault_of(dialled(at, gate.port))
        assert (fault.stage, fault.cause.code, fault.cause.kind) == (Stage.TRUST, "reset", Kind.WAITING)

    async def test_a_port_that_does_not_speak_tls(self, at: BrokerAt) -> None:
        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"AMQP\x00\x00\x09\x01")
            writer.close()

        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
            fault = await fault_of(dialled(at, server.sockets[0].getsockname()[1]))
        assert (fault.stage, fault.cause.code) == (Stage.TRUST, "not-tls")


class TestLogin:
    async def test_a_wrong_password(self, at: BrokerAt) -> None:
        fault = await fault_of(replace(at, credentials=lambda: Credentials(USER, SecretStr("wrong-secret"))))
        assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.LOGIN, Kind.BLOCKED, "login-refused")
        assert USER in fault.cause.text
        assert "403 ACCESS_REFUSED" in fault.cause.text
        assert "wrong-secret" not in repr(fault) + fault.cause.text

    async def test_an_unknown_user_is_refused_until_it_is_made(self, at: BrokerAt, management: Management, vhost: str) -> None:
        at = replace(at, credentials=lambda: Credentials("late@test", SecretStr(PASSWORD)))
        assert (await fault_of(at)).cause.code == "login-refused"
        await management.put_user("late@test", PASSWORD)
        fault = await fault_of(at)
        assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.LOGIN, Kind.BLOCKED, "no-permission")
        assert vhost in fault.cause.text
        await management.put_permissions(vhost, "late@test")
        await (await open_session(at, "late@test")).close()
        await management.delete_user("late@test")

    async def test_a_missing_vhost(self, at: BrokerAt) -> None:
        fault = await fault_of(replace(at, vhost="no/such vhost"))
        assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.LOGIN, Kind.BLOCKED, "no-vhost")
        assert "no/such vhost" in fault.cause.text

    async def test_a_connection_limit_is_waited_for(self, at: BrokerAt, broker: PrivateBroker, vhost: str) -> None:
        limit = f'rabbit_vhost_limit:parse_set(<<"{vhost}">>, <<"{{\\"max-connections\\": 0}}">>, <<"test">>).'
        await asyncio.to_thread(broker.evaluate, limit)
        fault = await fault_of(at)
        assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.LOGIN, Kind.WAITING, "connection-limit")

    async def test_credentials_that_are_not_there_yet_are_waited_for(self, at: BrokerAt, tmp_path: Path) -> None:
        def missing() -> Credentials:
            raise NotThereYet(tmp_path / "password", "is not there yet")

        fault = await fault_of(replace(at, credentials=missing))
        assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.LOGIN, Kind.WAITING, "no-credentials")
        assert str(tmp_path / "password") in fault.cause.text

    async def test_silence_after_tls_ends_at_the_deadline(
        self, at: BrokerAt, broker: PrivateBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(PACES, Stage.LOGIN, Pace(deadline=0.5, first=0.1, cap=0.1))
        tls = serving(broker.ca.issue(broker.name), broker.ca)
        async with Gate(broker.ports.amqps, mode=Mode.SILENT, tls=tls) as gate:
            began = time.monotonic()
            fault = await fault_of(dialled(at, gate.port))
            assert time.monotonic() - began < 4.0
        assert (fault.stage, fault.cause.kind, fault.cause.code) == (Stage.LOGIN, Kind.WAITING, "silent")

    @pytest.mark.parametrize(
        ("greeting", "words"),
        [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak AMQP"), (b"AMQP\x00\x01\x00\x00", "another version"), (b"", "closed")],
        ids=["http", "amqp-1.0", "hangs-up"],
    )
    async def test_another_protocol_under_tls(self, at: BrokerAt, broker: PrivateBroker, greeting: bytes, words: str) -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):  # the handshake that only reads the chain ends by a reset
                await reader.read(8)
                writer.write(greeting)
            writer.close()

        tls: ssl.SSLContext = serving(broker.ca.issue(broker.name), broker.ca)
        async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=tls) as server:
            fault = await fault_of(dialled(at, server.sockets[0].getsockname()[1]))
        assert (fault.stage, fault.cause.kind) == (Stage.LOGIN, Kind.WAITING)
        assert words in fault.cause.text
