"""Roles as they are at the server: looked up with their marks, refused if they are not ours."""

from dataclasses import dataclass

from mesh_runtime.startup import Stage, StageFault, blocked
from mesh_runtime_database.linking import Connection
from mesh_runtime_database.marks import Mark, read_mark

_ALL = "SELECT oid, rolname, rolcanlogin, shobj_description(oid, 'pg_authid') FROM pg_roles"
_ONE = "SELECT oid, rolname, rolcanlogin, shobj_description(oid, 'pg_authid') FROM pg_roles WHERE rolname = %s"


@dataclass(frozen=True, slots=True)
class Role:
    """A role, and its mark if it has one of ours."""

    oid: int
    name: str
    can_login: bool
    mark: Mark | None


async def find_role(connection: Connection, name: str) -> Role | None:
    """The role of this name, or None."""
    cursor = await connection.execute(_ONE, (name,))
    row = await cursor.fetchone()
    return Role(row[0], row[1], row[2], read_mark(row[3])) if row else None


async def all_roles(connection: Connection) -> list[Role]:
    """Every role of the server that carries a mark."""
    cursor = await connection.execute(_ALL)
    return [Role(oid, name, can_login, mark) for oid, name, can_login, comment in await cursor.fetchall() if (mark := read_mark(comment))]


async def is_superuser(connection: Connection) -> bool:
    """Whether we are one: everybody else must be a member of the roles that it makes, to act for them."""
    row = await (await connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")).fetchone()
    return bool(row and row[0])


def not_ours(what: str, name: str, mark: Mark | None) -> StageFault:
    """The refusal to take over what is somebody else's."""
    if mark is None:
        whose = "its comment does not say that the mesh made it"
    else:
        rows = {
            "kind": mark.kind,
            "ledger": mark.ledger,
            "resource": mark.resource,
            "owner": mark.owner,
            "consumer": mark.consumer,
            "sequence": mark.sequence,
        }
        whose = "its comment says " + ", ".join(f"{key} {value}" for key, value in rows.items() if value)
    return blocked(Stage.GRANTS, "not-ours", f"the {what} {name!r} is there, and {whose}: it is left alone", name)
