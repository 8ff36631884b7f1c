"""Free ports on loopback, for servers that a test starts, stops and starts again on the same port.

They are drawn below the range from which the kernel takes the ports of outgoing connections, so that no client on this
machine sits on a port while its server is down. What is drawn is not reserved: two processes that draw at the same
moment may, rarely, draw the same.
"""

import random
import socket

LOWEST, HIGHEST = 20_000, 32_000
"""The ports drawn from. Linux takes outgoing ports from 32768 on (`net.ipv4.ip_local_port_range`)."""

_drawn: set[int] = set()


def free_port() -> int:
    """Return a port on 127.0.0.1 that nothing listens on and that this process has not drawn before."""
    for port in random.sample(range(LOWEST, HIGHEST), 500):
        if port not in _drawn and _nothing_listens_on(port):
            _drawn.add(port)
            return port
    raise OSError(f"no free port between {LOWEST} and {HIGHEST} on 127.0.0.1")


def _nothing_listens_on(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
