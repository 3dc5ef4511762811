"""A reader may get the events of a type from one position on, and up to another."""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0037"
branch_labels = None
depends_on = None

COLUMNS = {
    "since": "From which position on the reader gets events of the type; null for all.",
    "until": "Up to which position it gets them, and the type is none of its own any more; null while it is.",
}


def upgrade() -> None:
    for name, comment in COLUMNS.items():
        op.add_column("reader_event_type", sa.Column(name, sa.BigInteger(), comment=comment))


def downgrade() -> None:
    # An older bus would read these types for good.
    op.execute("DELETE FROM reader_event_type WHERE until IS NOT NULL")
    for name in reversed(COLUMNS):
        op.drop_column("reader_event_type", name)
