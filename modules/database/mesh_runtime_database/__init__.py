"""The mesh's databases on one PostgreSQL server: granted, rotated and revoked; never dropped.

`database` is the runtime; `settings` says which server and how to log in there; `connecting` is the one way to it, always with a limit;
`faults` sorts what it says into waiting and blocked; `names` and `marks` decide what is a name and what is ours; `owning` makes a database
that belongs to a role which cannot log in; `logins` makes, lists and retires the roles which can; `trying` logs in as the consumer would;
`ledger` keeps the records on the same server.
"""

from mesh_runtime_database.database import PostgreSQL

__all__ = ["PostgreSQL"]
