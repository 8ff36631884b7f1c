"""What an issuer draws for each new login: its name and its secret. Both are recorded before anything is made of them."""

import hashlib
import json
import secrets
from collections import deque

from mesh_runtime.logging import forget_secret, register_secret

#: Characters of a login's name that show its consumer. With the mark and the number it stays below 64 bytes, as PostgreSQL wants.
SHOWN = 40
#: Hex digits of a login's mark, which tells consumer, resource and issuer from all others.
MARK = 12
#: Secrets that stay masked in this process's log after they were drawn, the newest.
MASKED = 64


def login_name(consumer: str, resource: str, issuer: str, sequence: int) -> str:
    """``orders@alpha.<mark>.<sequence>``: the same for the same grant, another for every other; at most 63 bytes of ASCII."""
    mark = hashlib.sha256(json.dumps([consumer, resource, issuer]).encode()).hexdigest()[:MARK]
    return f"{consumer[:SHOWN]}.{mark}.{sequence}"


class Secrets:
    """Draws secrets, and has the newest of them masked wherever this process writes.

    Not all of them for ever: an issuer draws without end, and every masked value makes every line of its log slower.
    """

    def __init__(self) -> None:
        self._masked: deque[str] = deque()

    def draw(self) -> str:
        """256 random bits in letters, digits, ``-`` and ``_``: of an alphabet that no syntax can misread (B58)."""
        secret = secrets.token_urlsafe(32)
        register_secret(secret)
        self._masked.append(secret)
        if len(self._masked) > MASKED:
            forget_secret(self._masked.popleft())
        return secret
