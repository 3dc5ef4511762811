"""Health tells of what does not get on: thresholds of roles, and indexes that find the oldest of it."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

ABSENT = (
    "How long it may be away while something waits for it before health tells of it; infinite for never, null for "
    "[health]'s."
)
PARKED = "How long something may be parked for it before health tells of it; infinite for never, null for [health]'s."


def upgrade() -> None:
    op.add_column("role", sa.Column("absent_minutes", sa.Float(), comment=ABSENT))
    op.add_column("role", sa.Column("parked_minutes", sa.Float(), comment=PARKED))
    is_open = sa.text("state = 'open'")
    op.drop_index("ix_envelope_open", "envelope")
    columns = ["state", "opened_at"]
    op.create_index("ix_envelope_open", "envelope", columns, sqlite_where=is_open, postgresql_where=is_open)
    op.drop_index("ix_parked_item_state", "parked_item")
    op.create_index("ix_parked_item_state", "parked_item", ["state", "role_id", "changed_at"])
    is_parked = sa.text("state = 'parked'")
    columns = ["role_id", "changed_at"]
    op.create_index("ix_delivery_parked", "delivery", columns, sqlite_where=is_parked, postgresql_where=is_parked)
    waits = sa.text("service_id IS NOT NULL")
    columns = ["service_id", "changed_at"]
    op.create_index("ix_delivery_service_id", "delivery", columns, sqlite_where=waits, postgresql_where=waits)
