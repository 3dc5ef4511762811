"""Indices by which the list of groups of failures costs as little with a million of them as with a thousand."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

FINGERPRINT, TRACKING, OWNER = "ix_failure_fingerprint", "ix_failure_group_tracking", "ix_failure_owner"


def upgrade() -> None:
    op.drop_index(FINGERPRINT, "failure")
    op.create_index(FINGERPRINT, "failure", ["fingerprint", "id"])
    op.create_index(TRACKING, "failure", ["fingerprint", "tracking"])
    owned = sa.text("owner IS NOT NULL")
    op.create_index(OWNER, "failure", ["fingerprint", "owner"], sqlite_where=owned, postgresql_where=owned)


def downgrade() -> None:
    for index in (OWNER, TRACKING, FINGERPRINT):
        op.drop_index(index, "failure")
    op.create_index(FINGERPRINT, "failure", ["fingerprint", "id", "role_id", "code", "tracking", "owner"])
