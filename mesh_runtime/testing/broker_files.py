"""The directory of a private broker: its configuration, certificates, definitions, data and logs.

Nothing of it touches what Debian set up for the whole system: node name, cookie, ports, data and log are this broker's
own, and every port listens on loopback alone. AMQP is spoken over TLS only; the management API is plain HTTP.
"""

import base64
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mesh_runtime.testing.ca import Leaf
from mesh_runtime.testing.ports import free_port

Definitions = Mapping[str, Any]
"""What the management API calls definitions: `users`, `vhosts`, `permissions`, `exchanges`, `queues`, `policies`, ..."""

ADMIN = "admin"
"""The broker's own administrator, who may do all in every vhost that definitions or the management API make."""

_ERLANG_HOSTS = '{host, {127,0,0,1}, ["localhost"]}.\n{lookup, [file]}.\n'


@dataclass(frozen=True)
class Ports:
    """The four ports of one broker, all on 127.0.0.1."""

    amqps: int = field(default_factory=free_port)
    management: int = field(default_factory=free_port)
    distribution: int = field(default_factory=free_port)
    epmd: int = field(default_factory=free_port)


def password_hash(password: str) -> str:
    """Return `password` as definitions carry it (RabbitMQ guide *Passwords*: 4 bytes of salt, SHA-256, base64)."""
    salt = os.urandom(4)
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


class BrokerFiles:
    """Lays out `directory`, which the broker's programs see as `seen` (another path where they run in a rootfs)."""

    def __init__(self, directory: Path, seen: Path, ports: Ports) -> None:
        self.directory = directory
        self.ports = ports
        self.admin_password = secrets.token_urlsafe(24)
        self.node = f"mesh-{secrets.token_hex(4)}@localhost"
        self._seen = seen
        for name in ("tls", "log", "data", "home"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        cookie = directory / "home" / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        (directory / "erl_inetrc").write_text(_ERLANG_HOSTS)
        (directory / "enabled_plugins").write_text("[rabbitmq_management].\n")

    def environment(self) -> dict[str, str]:
        """Return the whole environment of the broker's programs; nothing is inherited but PATH and the language."""
        seen = self._seen
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": str(seen / "home"),
            "ERL_CRASH_DUMP_SECONDS": "0",  # none
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.ports.epmd),
            "ERL_INETRC": str(seen / "erl_inetrc"),
            "RABBITMQ_CONF_ENV_FILE": str(seen / "no-environment-file"),
            "RABBITMQ_CONFIG_FILE": str(seen / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(seen / "enabled_plugins"),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_DIST_PORT": str(self.ports.distribution),
            "RABBITMQ_MNESIA_BASE": str(seen / "data"),
            "RABBITMQ_LOG_BASE": str(seen / "log"),
            "RABBITMQ_LOGS": str(seen / "log" / "broker.log"),
            "RABBITMQ_PID_FILE": str(seen / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none"
            ),
            "RUNNING_UNDER_SYSTEMD": "true",  # the start script then becomes the server, instead of waiting for it
        }

    def write_configuration(self, settings: Mapping[str, str], definitions: Definitions | None) -> None:
        """Write `rabbitmq.conf`. `definitions` are in place before the broker's TLS port first accepts."""
        tls = self._seen / "tls"
        lines = {
            "listeners.tcp": "none",
            "listeners.ssl.default": f"127.0.0.1:{self.ports.amqps}",
            "ssl_options.cacertfile": f"{tls}/ca.pem",
            "ssl_options.certfile": f"{tls}/leaf.pem",
            "ssl_options.keyfile": f"{tls}/key.pem",
            "ssl_options.verify": "verify_none",
            "ssl_options.fail_if_no_peer_cert": "false",
            "management.tcp.ip": "127.0.0.1",
            "management.tcp.port": str(self.ports.management),
            "collect_statistics_interval": "500",
            **{f"management.sample_retention_policies.{which}.minute": "1" for which in ("global", "basic", "detailed")},
            "disk_free_limit.absolute": "10MB",
            "vm_memory_high_watermark.relative": "0.5",
            "log.file.level": "info",
            **settings,
        }
        if definitions is not None:
            lines["load_definitions"] = str(self._seen / "definitions.json")
            (self.directory / "definitions.json").write_text(json.dumps(self._with_admin(definitions)))
        text = "".join(f"{key} = {value}\n" for key, value in lines.items())
        (self.directory / "rabbitmq.conf").write_text(text)

    def write_certificate(self, ca: bytes, leaf: Leaf) -> None:
        """Write what the TLS port serves; a running broker reads it once its cache is cleared."""
        tls = self.directory / "tls"
        (tls / "ca.pem").write_bytes(ca)
        (tls / "leaf.pem").write_bytes(leaf.certificate)
        (tls / "key.pem").write_bytes(leaf.key)

    def last_words(self) -> str:
        """Return the first errors and the end of each log, for the message of a failed start."""
        return "\n".join(f"--- {log.name}\n{_gist(log)}" for log in sorted((self.directory / "log").glob("*.log")))

    def _with_admin(self, definitions: Definitions) -> dict[str, Any]:
        hashed = password_hash(self.admin_password)
        admin = {
            "name": ADMIN,
            "password_hash": hashed,
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["administrator"],
        }
        everything = {"user": ADMIN, "configure": ".*", "write": ".*", "read": ".*"}
        rights = [{"vhost": vhost["name"], **everything} for vhost in definitions.get("vhosts", [])]
        return {
            **definitions,
            "users": [*definitions.get("users", []), admin],
            "permissions": [*definitions.get("permissions", []), *rights],
        }


def _gist(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    errors = [line for line in lines if "[error]" in line][:20]
    return "\n".join([*errors, *lines[-10:]])
