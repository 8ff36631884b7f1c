"""Where a broker is dialled: a host and a port, written `host:port`, an IPv6 address in brackets."""

import ipaddress
import re
from dataclasses import dataclass

_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?\Z")
_NUMERIC = re.compile(r"[0-9.]+\Z")
_PORT = re.compile(r"[0-9]{1,5}\Z")


@dataclass(frozen=True, slots=True)
class Address:
    """One address to dial. `host` is a DNS name or an IP address without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address that `host:port` names; raises ValueError with what is wrong and what would be right."""
    host, colon, port = text.rpartition(":")
    if "://" in text:
        raise ValueError("it is a URL; it must read host:port, without scheme, login or path")
    if "@" in text:
        raise ValueError("it holds a login; it must read host:port, and the login stands in MESH_CREDENTIALS")
    if not colon or not host:
        raise ValueError(f"{text!r} has no host or no port; it must read host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not is_ip(host) or ":" not in host:
            raise ValueError(f"{host!r} in brackets is no IPv6 address")
    elif ":" in host:
        raise ValueError(f"{text!r} holds several ':'; an IPv6 address stands in brackets, as in [fd00::1]:5671")
    check_host(host)
    if not _PORT.match(port) or not 1 <= int(port) <= 65535:
        raise ValueError(f"{port!r} is no port; a port is a number from 1 to 65535")
    return Address(host, int(port))


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Return the addresses of a list separated by commas, each once, in order; raises ValueError."""
    return tuple(dict.fromkeys(parse_address(each.strip()) for each in text.split(",")))


def check_host(host: str) -> str:
    """Return the host if it is a DNS name (ASCII; an international one in its `xn--` form) or an IP address."""
    if is_ip(host):
        return host
    if _NUMERIC.match(host) or len(host) > 253 or not _NAME.match(host):
        raise ValueError(f"{host!r} is neither a DNS name nor an IP address")
    return host


def is_ip(host: str) -> bool:
    """Say whether the host is an IP address, of either version."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
