"""What a consumer was handed, as only the lab can know it: opened from the issuer's ledger with the consumer's key; tried from outside."""

import asyncio

import psycopg

from beds.greeting import MODULE
from beds.lab import MACHINE, Lab
from beds.recording import StepFailed
from mesh_runtime.contracts.database import Database, DatabaseAccess
from mesh_runtime.grants.ledger import Login, Record
from mesh_runtime.testing.waiting import until
from mesh_runtime.trust.sealing import PrivateKey, purpose_of

RESOURCE = Database(name="motd")
CONSUMER = f"{MODULE}@{MACHINE}"
ISSUER = f"database@{MACHINE}"

_RECORD = "SELECT record FROM mesh_ledger.grants WHERE resource = %s AND consumer = %s"


async def read_record(lab: Lab) -> Record | None:
    """The issuer's record of the grant. Raises psycopg.Error."""
    rows = await asyncio.to_thread(lab.postgres.query, _RECORD, RESOURCE.text, CONSUMER)
    return Record.model_validate_json(rows[0][0]) if rows else None


def open_access(lab: Lab, login: Login) -> DatabaseAccess:
    """What was sealed to the consumer: nobody without its key can read it. Raises CannotOpen for a login that was never issued."""
    key = PrivateKey.load(lab.founded.key_file(MODULE))
    purpose = purpose_of("access", CONSUMER, RESOURCE.text, ISSUER, login.sequence)
    return DatabaseAccess.model_validate_json(key.open(login.sealed, purpose))


async def log_in(access: DatabaseAccess) -> None:
    """Log in and read, and write what is taken back. Raises StepFailed."""
    try:
        async with await psycopg.AsyncConnection.connect(**access.fields(), connect_timeout=5) as connection:
            await connection.execute("SELECT count(*) FROM greeted")
            await connection.execute("INSERT INTO greeted VALUES ('a trial from outside')")
            await connection.rollback()
    except psycopg.Error as error:
        raise StepFailed(f"the login {access.user} does not work: {error}") from None


async def until_refused(access: DatabaseAccess, within: float) -> str:
    """The server's words to a login that must work no more. Raises AssertionError."""
    words = ""

    async def refused() -> bool:
        nonlocal words
        try:
            async with await psycopg.AsyncConnection.connect(**access.fields(), connect_timeout=5):
                return False
        except psycopg.OperationalError as error:
            words = str(error).strip()
            return True

    await until(refused, f"the login {access.user} is refused", within=within, every=0.3)
    return words
