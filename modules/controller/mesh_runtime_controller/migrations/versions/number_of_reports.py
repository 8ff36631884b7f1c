"""The number of a report: of two of one generation, the greater was seen later."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a report that was kept before has none."""
    op.add_column("reports", sa.Column("number", sa.Integer(), nullable=False, server_default="0"))
