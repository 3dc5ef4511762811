"""A registration says where the journal was when it was made: a copy of the journal uses none that it did not make."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "registration",
        sa.Column(
            "place",
            sa.Text(),
            comment="Where the journal was when the registration was made; null where that is not known. The broker calls only recipients that registered where the journal is now.",
        ),
    )
