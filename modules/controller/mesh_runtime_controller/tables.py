"""The inventory's tables. Migrations (``migrations/versions``) make them; a test holds the two together.

*Intent*: machines, placements, keys. *Facts*: reports. *What was done*: declarations, refusals. A placement's or a key's row is never
changed but for its end: other parameters are another row, so the history of what operators said stays.
"""

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, MetaData, Table, Text, text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: One row: whose inventory it is. ``revision`` counts changes of machines and placements, on which lookups and composes rest.
mesh = Table(
    "mesh",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True),
    Column("mesh", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("founded", Text, nullable=False),
)

#: ``generation`` is that of the newest declaration stored for it, 0 before the first. ``pushed_revision`` is that from which it was last
#: composed with success: what was said up to there has taken effect, the end of a placement too.
machines = Table(
    "machines",
    metadata,
    Column("name", Text, primary_key=True),
    Column("address", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("since_revision", Integer, nullable=False),
    Column("pushed_revision", Integer, nullable=False, server_default="0"),
)

#: What operators placed. In force while ``ended_revision`` is null. ``parameters`` is a JSON object of texts.
placements = Table(
    "placements",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("module", Text, nullable=False),
    Column("machine", Text, ForeignKey("machines.name"), nullable=False),
    Column("parameters", Text, nullable=False),
    Column("seat", Text),
    Column("since_revision", Integer, nullable=False),
    Column("since", Text, nullable=False),
    Column("ended_revision", Integer),
    Column("ended", Text),
)
Index(
    "ix_placements_one_of_a_module_on_a_machine",
    placements.c.module,
    placements.c.machine,
    unique=True,
    sqlite_where=text("ended_revision IS NULL"),
)
Index(
    "ix_placements_one_holder_of_a_seat",
    placements.c.seat,
    unique=True,
    sqlite_where=text("ended_revision IS NULL AND seat IS NOT NULL"),
)

#: Public keys of placements, by identity; the one whose ``ended_revision`` is null is recorded now.
keys = Table(
    "keys",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("identity", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("since_revision", Integer, nullable=False),
    Column("since", Text, nullable=False),
    Column("ended_revision", Integer),
    Column("ended", Text),
)
Index("ix_keys_one_of_an_identity", keys.c.identity, unique=True, sqlite_where=text("ended_revision IS NULL"))

#: Every declaration that was signed, stored before it is told. ``modules`` says what it rests on, ``elements`` which it holds (JSON);
#: ``told`` is stored, told, not-sent, unknown or refused.
declarations = Table(
    "declarations",
    metadata,
    Column("machine", Text, ForeignKey("machines.name"), primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("epoch", Integer, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("statement", Text, nullable=False),
    Column("signature", Text, nullable=False),
    Column("elements", Text, nullable=False),
    Column("modules", Text, nullable=False),
    Column("stored", Text, nullable=False),
    Column("told", Text, nullable=False),
)

#: The newest report of each machine, as JSON of the contract.
reports = Table(
    "reports",
    metadata,
    Column("machine", Text, ForeignKey("machines.name"), primary_key=True),
    Column("epoch", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("number", Integer, nullable=False, server_default="0"),
    Column("report", Text, nullable=False),
    Column("heard", Text, nullable=False),
)

#: The refusal that stands for a machine, as JSON of ``Refused``; ``since`` is when one of this code first did.
refusals = Table(
    "refusals",
    metadata,
    Column("machine", Text, ForeignKey("machines.name"), primary_key=True),
    Column("code", Text, nullable=False),
    Column("refused", Text, nullable=False),
    Column("since", Text, nullable=False),
    Column("last", Text, nullable=False),
)
