"""What an issuer remembers of each grant, and the interface behind which it is kept: where the effect lives.

A record is written before the effect that it announces and after the one that it reports, so that at each moment every login that can exist
stands in some record. It holds sealed texts and public keys, never a secret. Records are written by compare-and-set: of two writers that
read the same version one fails and looks again.
"""

from typing import Protocol

from pydantic import BaseModel, ConfigDict

from mesh_runtime.contracts.granting import LoginState


class Login(BaseModel):
    """One login of a grant. ``sealed`` is sealed to ``key`` by ``issuer`` (an identity): the secret alone while ``drawn``, then the whole
    access.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    sequence: int
    login: str
    state: LoginState
    key: str
    sealed: str
    issuer: str
    since: str
    confirmed: str = ""


class Record(BaseModel):
    """One grant: a resource (its text, and its fields as JSON) for a consumer.

    ``key`` is the public key that is served, empty while the next that asks rightly is to be taken (before the first, after a rekey).
    ``revoked`` says by whom and when, empty while it stands. ``sequence`` is the greatest that was ever drawn; it never falls. ``granted``
    is the greatest that was ever issued: from the first on, the resource belongs to the consumer's module. ``version`` is the ledger's: 0
    for a record that was never written.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    resource: str
    fields: str
    consumer: str
    key: str = ""
    revoked: str = ""
    sequence: int = 0
    granted: int = 0
    logins: tuple[Login, ...] = ()
    version: int = 0


class Moved(Exception):
    """The record was written by somebody else since it was read: read it again."""


class Ledger(Protocol):
    """Where records are kept. Each call is whole or raises; what it raises is waited for."""

    async def read(self, resource: str, consumer: str) -> Record | None:
        """The record of this grant, or None: there never was one."""

    async def all(self) -> tuple[Record, ...]:
        """Every record."""

    async def write(self, record: Record) -> Record:
        """Store ``record`` if the stored one has its ``version`` (none, for 0); returns it with the version it now has. Durable on return.

        Raises Moved if the stored one has another.
        """
