"""The first inventory: machines, placements, declarations, reports, refusals."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "mesh",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("mesh", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("founded", sa.Text(), nullable=False),
        sa.CheckConstraint("id = 1", name="ck_mesh_one_row"),
        sa.PrimaryKeyConstraint("id", name="pk_mesh"),
    )
    op.create_table(
        "machines",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("since_revision", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_machines"),
    )
    op.create_table(
        "placements",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("module", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("parameters", sa.Text(), nullable=False),
        sa.Column("seat", sa.Text(), nullable=True),
        sa.Column("since_revision", sa.Integer(), nullable=False),
        sa.Column("since", sa.Text(), nullable=False),
        sa.Column("ended_revision", sa.Integer(), nullable=True),
        sa.Column("ended", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["machine"], ["machines.name"], name="fk_placements_machine"),
        sa.PrimaryKeyConstraint("id", name="pk_placements"),
    )
    op.create_index(
        "ix_placements_one_of_a_module_on_a_machine",
        "placements",
        ["module", "machine"],
        unique=True,
        sqlite_where=sa.text("ended_revision IS NULL"),
    )
    op.create_index(
        "ix_placements_one_holder_of_a_seat",
        "placements",
        ["seat"],
        unique=True,
        sqlite_where=sa.text("ended_revision IS NULL AND seat IS NOT NULL"),
    )
    op.create_table(
        "declarations",
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("statement", sa.Text(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("elements", sa.Text(), nullable=False),
        sa.Column("modules", sa.Text(), nullable=False),
        sa.Column("stored", sa.Text(), nullable=False),
        sa.Column("told", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["machine"], ["machines.name"], name="fk_declarations_machine"),
        sa.PrimaryKeyConstraint("machine", "generation", name="pk_declarations"),
    )
    op.create_table(
        "reports",
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.Column("heard", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["machine"], ["machines.name"], name="fk_reports_machine"),
        sa.PrimaryKeyConstraint("machine", name="pk_reports"),
    )
    op.create_table(
        "refusals",
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("refused", sa.Text(), nullable=False),
        sa.Column("since", sa.Text(), nullable=False),
        sa.Column("last", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["machine"], ["machines.name"], name="fk_refusals_machine"),
        sa.PrimaryKeyConstraint("machine", name="pk_refusals"),
    )
