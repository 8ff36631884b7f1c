"""Where a container engine looks for the CA of a registry: one directory, derived from the registry's address.

Source: the Docker Engine's manual, *Verify repository client with certificates*: `certs.d/<host>[:<port>]/ca.crt`. The engine silently
ignores a directory of any other name, so an address that is not exactly `host[:port]` is refused instead of guessed at.
"""

import ipaddress
import re

from pydantic import TypeAdapter, ValidationError

from mesh_runtime.contracts.sections import Registry

#: Where the directories stand, under the root.
CERTS = "/etc/docker/certs.d"
#: The port of a registry whose address names none (RFC 9110, *https*); left out of the directory's name.
DEFAULT_PORT = "443"

_READER: TypeAdapter[str] = TypeAdapter(Registry)
_PARTS = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*)(:(?P<port>[1-9][0-9]*))?\Z")


def certs_directory(address: str) -> str:
    """The absolute path of the directory for the registry at `address`; raises ValueError for what is no plain `host[:port]`."""
    try:
        parts = _PARTS.match(_READER.validate_python(address))
    except ValidationError as wrong:
        raise ValueError(f"{address!r}: {wrong.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    if parts is None:
        raise ValueError(f"{address!r}: its port must be written without leading zeros")
    host, port = parts["host"], parts["port"]
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise ValueError(f"{address!r}: {host} is no IPv6 address") from None
    name = host if port is None else f"{host}:{port}"
    name = name.removesuffix(f":{DEFAULT_PORT}")
    return f"{CERTS}/{name}"
