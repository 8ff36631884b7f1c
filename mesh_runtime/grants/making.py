"""A new login: drawn and recorded, made and tried by its author's code, sealed and recorded again. It may be cut anywhere in between.

What was drawn and not issued is nobody's: its secret is known to no one once this process has gone on. The next attempt draws another
login with another secret, and the old one is retired.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import SecretStr, ValidationError

from mesh_runtime.asking.scope import current_scope
from mesh_runtime.asking.words import complaint_of
from mesh_runtime.contracts.granting import Access, Resource
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.wire import DEFAULT_BUDGET, NESTED_SHARE
from mesh_runtime.grants.drawing import Secrets, login_name
from mesh_runtime.grants.ledger import Login, Record
from mesh_runtime.grants.providing import Claim, Provides
from mesh_runtime.grants.records import Records, moving
from mesh_runtime.grants.retiring import Retirer
from mesh_runtime.grants.states import newest_in_force, retiring
from mesh_runtime.grants.trying import Failed, trying
from mesh_runtime.trust.keys import BadKey
from mesh_runtime.trust.sealing import PublicKey, purpose_of

#: Logins of one grant beside the newest in force. With so many that could not be ended, no other is drawn.
UNRETIRED = 8


class Maker:
    """Makes logins for one issuer. Call it under the lock of the resource."""

    def __init__(self, provides: Provides[Any, Any], issuer: str, records: Records, retirer: Retirer, clock: Callable[[], str]) -> None:
        self._provides = provides
        self._issuer = issuer
        self._records = records
        self._retirer = retirer
        self._clock = clock
        self._secrets = Secrets()

    async def make(self, record: Record, resource: Resource[Any], key: str) -> Record | Failed:
        """``record`` with one more login, ``issued`` to ``key``; or why there is none. Raises Fault, and Moved if ``record`` is not the
        newest.
        """
        newest = newest_in_force(record)
        left = [one for one in record.logins if one is not newest]
        if len(left) >= UNRETIRED:
            return self._unretired(record, left)
        sequence = record.sequence + 1
        name, secret = login_name(record.consumer, record.resource, self._issuer, sequence), self._secrets.draw()
        try:
            sealed = PublicKey.parse(key).seal(secret.encode(), self._purpose("secret", record, sequence))
        except BadKey as bad:
            return Failed("bad-key", f"{record.consumer} asks with a key that cannot be used: {bad}", again=False)
        drawn = Login(sequence=sequence, login=name, state="drawn", key=key, sealed=sealed, issuer=self._issuer, since=self._clock())
        older = tuple(retiring(one) if one.state == "drawn" else one for one in record.logins)
        wanted = record.model_copy(update={"key": key, "sequence": sequence, "logins": (*older, drawn)})
        record = await self._records.write(wanted)
        owner = Identity.parse(record.consumer).module
        access = await self._made(Claim(resource, record.consumer, owner, name, SecretStr(secret), sequence))
        if isinstance(access, Failed):
            return access
        sealed = PublicKey.parse(key).seal(access.revealed(), self._purpose("access", record, sequence))
        return await self._issued(record, drawn.model_copy(update={"state": "issued", "sealed": sealed, "since": self._clock()}))

    async def renew(self, record: Record) -> Record | Failed:
        """``make`` for the resource and the key of the record itself: one more login beside those in force. Raises as ``make``."""
        provided = self._provides.provided
        try:
            resource = provided.model_validate_json(record.fields)
        except ValidationError as wrong:
            return Failed(
                "other-contract", f"the record of {record.resource} holds no {provided.__name__}: {complaint_of(wrong)}", again=False
            )
        return await self.make(record, resource, record.key)

    async def _made(self, claim: Claim[Any]) -> Access | Failed:
        author, wanted = type(self._provides).__name__, self._provides.provided.access_type()
        made = await trying(f"{author}.make", "make-failed", self._provides.make(claim), _left())
        if isinstance(made, Failed):
            return _repeated(made, author, claim.sequence)
        if type(made) is not wanted:
            return Failed("wrong-access", f"{author}.make returned {type(made).__name__}, it must be {wanted.__name__}")
        revealed = await trying(f"{wanted.__name__}.revealed", "wrong-access", _revealed(made), _left())
        if isinstance(revealed, Failed):
            return revealed
        if claim.secret.get_secret_value().encode() not in revealed:
            words = f"{author}.make returned an access without the secret of its claim: the library draws the secret, make uses it"
            return Failed("wrong-access", words)
        tried = await trying(f"{author}.check", "check-failed", self._provides.check(made), _left())
        return tried if isinstance(tried, Failed) else made

    async def _issued(self, record: Record, issued: Login) -> Record | Failed:
        """Record that it can be answered, unless it was ended meanwhile: then it is retired, also if nobody recorded it any more."""

        def issue(stored: Record) -> Record | None:
            if not any(one.sequence == issued.sequence and one.state == "drawn" for one in stored.logins):
                return None
            logins = tuple(issued if one.sequence == issued.sequence else one for one in stored.logins)
            return stored.model_copy(update={"logins": logins, "granted": issued.sequence})

        stored = await self._records.change(record.resource, record.consumer, issue)
        stands = next((one for one in stored.logins if one.sequence == issued.sequence), None) if stored else None
        if stored is not None and stands == issued:
            return stored
        if stands is None:
            await self._retirer.end(issued.login)
        return moving(record.resource, record.consumer)

    def _unretired(self, record: Record, left: list[Login]) -> Failed:
        words = f"{len(left)} logins of {record.resource} for {record.consumer} could not be ended yet, no other is made before"
        return Failed("unretired", f"{words}: {self._retirer.words(record) or ', '.join(one.login for one in left)}")

    def _purpose(self, what: str, record: Record, sequence: int) -> bytes:
        return purpose_of(what, record.consumer, record.resource, self._issuer, sequence)


async def _revealed(access: Access) -> bytes:
    return access.revealed()


def _repeated(failed: Failed, author: str, sequence: int) -> Failed:
    if not failed.plain or sequence == 1:
        return failed
    again = f"{failed.why}; it was called for this grant before, {author}.make must be repeatable: all or half of it may be there already"
    return Failed(failed.code, again)


def _left() -> float:
    """Seconds that an author's code may take, so that the answer still arrives in time."""
    scope = current_scope()
    if scope is None or scope.deadline is None:
        return DEFAULT_BUDGET
    return max(0.0, scope.deadline - asyncio.get_running_loop().time()) * NESTED_SHARE
