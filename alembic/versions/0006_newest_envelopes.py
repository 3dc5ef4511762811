"""The newest envelopes are found by when they were opened: ids made of a key tell nothing of that."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_envelope_opened_at", "envelope", ["opened_at", "id"])
