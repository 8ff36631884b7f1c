"""B58: a password may be any text; it travels as a field, and is in no statement."""

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from pydantic import SecretStr

from mesh_runtime.startup import Kind

if TYPE_CHECKING:
    from conftest import Provisioner

HARD = (
    *("p@ss/w#rd?x", "a%41b", "per%cent", "a+b c", "col:on", "ü€", "'\"; --", "x" * 200, " leading", "trailing ", "back\\slash", "\\'"),
    *(
        "$1",
        "%s",
        "%(x)s",
        "{}",
        "tab\there",
        "line\nend",
        "a=b&c=d",
        "[::1]",
        "😀",
        "\u00ad\u2003",
        "\x01\x7f",
        "x" * 5000,
        "md5" + "0" * 32,
    ),
    "SCRAM-SHA-256$4096:c2FsdA==$a:b",
)


async def test_b58_every_hard_password_logs_in_by_fields_and_by_url(provisioner: "Provisioner") -> None:
    """
    Removal: mesh_runtime/contracts/database.py: parts |= {name: quote(text, safe="") for name, text in parts.items()}
    Assertion: assert by_url == access.user, password
    """
    module = await provisioner.prepared()
    for number, password in enumerate(HARD, 1):
        access = await module.make(provisioner.claim(login=f"orders@alpha.0a1b2c3d4e5f.{number}", secret=password))
        await module.check(access)
        assert access.fields()["password"] == password
        by_fields = await provisioner.run(access, "SELECT session_user")
        assert by_fields == [(access.user,)], password
        by_url = await _by_url(access.url())
        assert by_url == access.user, password
        assert "password authentication failed" in await provisioner.refusal(access, password=password + "x")


async def _by_url(url: str) -> str:
    """Who is logged in; what the driver says of a URL that it cannot read or that leads elsewhere."""
    try:
        connection: psycopg.AsyncConnection[Any] = await psycopg.AsyncConnection.connect(url, connect_timeout=5)
    except psycopg.Error as error:
        return str(error)
    try:
        row = await (await connection.execute("SELECT session_user")).fetchone()
        return str(row[0]) if row else ""
    finally:
        await connection.close()


async def test_b58_what_no_server_could_take_is_refused_without_being_shown(provisioner: "Provisioner") -> None:
    module, before = await provisioner.prepared(), provisioner.postgres.log_size
    for password, words in (("sec\0ret", "holds a NUL"), ("", "is empty"), ("secret\ud800", "half a surrogate pair")):
        fault = await provisioner.fault(module.make(provisioner.claim()._replace(secret=SecretStr(password))))
        assert (fault.cause.kind, fault.cause.code) == (Kind.BLOCKED, "bad-secret")
        assert words in fault.cause.text
        assert "sec" not in fault.cause.text
    assert provisioner.postgres.statements(before) == []


async def test_b58_the_servers_own_password_may_be_as_hard(provisioner: "Provisioner") -> None:
    provisioner.postgres.query("CREATE ROLE chief SUPERUSER LOGIN")
    for password in HARD:
        if password.startswith(("md5", "SCRAM")):
            continue  # in a statement the server takes these for what they look like
        text = sql.SQL("ALTER ROLE chief PASSWORD {}").format(sql.Literal(password)).as_string()
        provisioner.postgres.query(text)
        provisioner.postgres.write_server(provisioner.files, user="chief", password=password + "\n")
        await provisioner.module().prepare()
