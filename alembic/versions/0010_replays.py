"""History that is sent again to one role is told from what comes again because it was parked."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "envelope_role",
        sa.Column(
            "replay",
            sa.String(255),
            comment="What its operator calls the replay by which it was sent to the role again; null for what comes "
            "again because it was parked.",
        ),
    )
