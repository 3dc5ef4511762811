"""Event types and services keep a name for good beside the one that an administrator may change."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

FIRST_NAME = "The name that it was made with, for good: hashes of envelopes hold it."
KEY = "How a running broker knows it, for good: the name that it was made with, unless another has that key."


def upgrade() -> None:
    first_name = sa.Column(
        "first_name", sa.String(255), nullable=False, server_default=sa.text("''"), comment=FIRST_NAME
    )
    op.add_column("event_type", first_name)
    op.add_column(
        "service", sa.Column("key", sa.String(300), nullable=False, server_default=sa.text("''"), comment=KEY)
    )
    op.execute("UPDATE event_type SET first_name = name")
    op.execute("UPDATE service SET key = name")
    op.create_index("ix_service_key", "service", ["key"], unique=True)
