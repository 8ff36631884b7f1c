"""Keys of placements, and how far each machine was pushed: on both rests who is granted something."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make them; no machine counts as pushed, so that no placement's end has taken effect unseen."""
    op.add_column("machines", sa.Column("pushed_revision", sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "keys",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("since_revision", sa.Integer(), nullable=False),
        sa.Column("since", sa.Text(), nullable=False),
        sa.Column("ended_revision", sa.Integer(), nullable=True),
        sa.Column("ended", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
    )
    op.create_index("ix_keys_one_of_an_identity", "keys", ["identity"], unique=True, sqlite_where=sa.text("ended_revision IS NULL"))
