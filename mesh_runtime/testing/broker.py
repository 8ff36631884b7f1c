"""A private RabbitMQ for tests and beds: TLS, free ports, own data, and every way in which a broker can fail.

It starts in seconds, keeps ports and data over stop and start, and leaves no process behind: not when the test run ends,
nor when that is killed. It never joins, asks or disturbs another broker of this machine.

All methods block, and each is bounded; in a coroutine use `await asyncio.to_thread(broker.stop)`, or `async with`.
"""

import contextlib
import signal
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mesh_runtime.testing.broker_files import ADMIN, BrokerFiles, Definitions, Ports
from mesh_runtime.testing.ca import CertificateAuthority, Leaf
from mesh_runtime.testing.installation import PROGRAMS, Installation
from mesh_runtime.testing.supervised import ServerFailed, Supervised

START_LIMIT, STOP_LIMIT, CONTROL_LIMIT = 60.0, 30.0, 30.0
"""Seconds: far above what a loaded machine was seen to need (5 to 8 s for a start)."""


class BrokerFailed(ServerFailed):
    """The broker did not do what it was told. The message carries the end of its log."""


@dataclass(frozen=True)
class BrokerOptions:
    """What a private broker is made of; by default apt's RabbitMQ with a sound certificate of a new CA."""

    installation: Installation = field(default_factory=Installation)
    name: str = "broker.mesh"
    """The name in its certificate, which clients verify (`MESH_BROKER_NAME`); they dial 127.0.0.1."""
    ca: CertificateAuthority = field(default_factory=lambda: CertificateAuthority("the test broker's CA"))
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further lines of rabbitmq.conf, for example `{"heartbeat": "5", "consumer_timeout": "2000"}`."""


class PrivateBroker(Supervised):
    """One broker on ports of its own, known from the start: clients can dial `address` before there is anything."""

    what = "the broker"
    failed = BrokerFailed
    stop_limit = STOP_LIMIT

    def __init__(self, options: BrokerOptions | None = None) -> None:
        """Lay out its directory; nothing runs before `start`.

        Raises NoBroker if the wanted RabbitMQ is not there.
        """
        self.options = options or BrokerOptions()
        self.options.installation.check()
        super().__init__(Path(tempfile.mkdtemp(prefix="mesh-broker-")))
        self.ports = Ports()
        seen = self.options.installation.seen(self.directory)
        self._files = BrokerFiles(self.directory, seen, self.ports)
        self._files.write_certificate(self.ca.certificate, self.ca.issue(self.name))
        self._fresh = True

    @property
    def ca(self) -> CertificateAuthority:
        """The CA under which its first certificate was issued."""
        return self.options.ca

    @property
    def name(self) -> str:
        """The name that its first certificate carries."""
        return self.options.name

    @property
    def address(self) -> str:
        """Where it speaks AMQP over TLS, as `MESH_BROKER` says it."""
        return f"127.0.0.1:{self.ports.amqps}"

    @property
    def management_url(self) -> str:
        """Where its management API is; its user is `admin`."""
        return f"http://127.0.0.1:{self.ports.management}"

    @property
    def admin(self) -> tuple[str, str]:
        """User name and password of its administrator."""
        return ADMIN, self._files.admin_password

    def start(self, definitions: Definitions | None = None) -> None:
        """Start it, and return once its TLS port has completed a handshake.

        `definitions` are in place before that port first accepts, users by `password_hash`. Data and ports are those of
        the last run. Raises BrokerFailed with the end of its log if it ends or takes more than a minute.
        """
        if self.running:
            raise BrokerFailed("it runs already")
        if self._fresh and definitions is None:
            definitions = {}
        self._files.write_configuration(self.options.settings, definitions)
        self._launch(self._programs())
        try:
            self._wait_until(self._accepts, START_LIMIT, "accept TLS")
        except BrokerFailed:
            self.kill()
            raise
        self._fresh = False

    def stop(self) -> None:
        """Stop it in order, as an administrator would: connections are closed with a reason, data is kept."""
        self.resume()
        if self.running and self.options.installation.version().startswith("3."):
            # RabbitMQ 3.10 waits five seconds in vain for this handler's end; taken out before, it ends at once.
            with contextlib.suppress(BrokerFailed):
                self.evaluate("gen_event:delete_handler(rabbit_event, rabbit_mgmt_db_handler, stop).")
        self._signal(signal.SIGTERM)
        self._end()

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): its sockets stay open and silent, and the kernel still accepts new ones."""
        self._freeze()

    def resume(self) -> None:
        """Let a paused server go on."""
        self._signal(signal.SIGCONT)

    def set_alarm(self, on: bool) -> None:
        """Raise or clear the memory alarm: while it is on, the broker reads nothing from connections that publish."""
        self.evaluate(f"vm_memory_monitor:set_vm_memory_high_watermark({'0' if on else '0.5'}).")
        wanted = "true" if on else "false"
        self._wait_until(lambda: self.evaluate("rabbit_alarm:get_alarms() =/= [].") == wanted, CONTROL_LIMIT, f"set the alarm {on}")

    def set_parameter(self, key: str, value: str, application: str = "rabbit") -> None:
        """Set a parameter of the running server to an Erlang term, until its next start.

        `consumer_timeout` (milliseconds) counts for channels opened afterwards.
        """
        self.evaluate(f"application:set_env({application}, {key}, {value}).")

    def replace_certificate(self, leaf: Leaf, ca: CertificateAuthority | bytes | None = None) -> None:
        """Serve `leaf` (and `ca`, or its PEM, beside it) from the next handshake on; open connections stay as they are."""
        authority = ca or self.ca
        self._files.write_certificate(authority if isinstance(authority, bytes) else authority.certificate, leaf)
        if self.running:
            self.evaluate("ssl:clear_pem_cache().")

    def evaluate(self, expression: str) -> str:
        """Evaluate an Erlang expression in the server and return what it prints. Takes a second or two.

        Raises BrokerFailed with what `rabbitmqctl` said.
        """
        argv = self.options.installation.command(self.directory, str(PROGRAMS / "rabbitmqctl"), "eval", expression)
        try:
            done = subprocess.run(argv, env=self._files.environment(), capture_output=True, text=True, timeout=CONTROL_LIMIT, check=False)
        except subprocess.TimeoutExpired as late:
            raise BrokerFailed(f"rabbitmqctl did not end within {CONTROL_LIMIT:g} s: {expression}") from late
        if done.returncode != 0:
            raise BrokerFailed(f"{expression}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def _programs(self) -> list[dict[str, Any]]:
        environment = self._files.environment()
        log = str(self.directory / "log" / "console.log")
        command = self.options.installation.command
        return [
            {"name": "epmd", "argv": command(self.directory, "epmd"), "env": environment, "log": log},
            {
                "name": "server",
                "argv": command(self.directory, str(PROGRAMS / "rabbitmq-server")),
                "env": environment,
                "log": log,
            },
        ]

    def _accepts(self) -> bool:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            with (
                socket.create_connection(("127.0.0.1", self.ports.amqps), timeout=5) as plain,
                context.wrap_socket(plain),
            ):
                return True
        except OSError:
            return False

    def _last_words(self) -> str:
        return self._files.last_words()
