"""Parked batches of subscriptions, and the attempts of those that are out.

A parked batch is a range of its own, beside the ring. ``batch_of`` has no foreign key, as SQLite would have to rebuild the
table; ranges are never deleted.
"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

OF_COMPLETED = "When it was split or merged; null while it is read."
OF_TABLE = "A stretch of the ring of hashes that one program at a time reads. The ranges in use tile the ring."

NAMES = ("attempts", "retry_at", "batch_of", "parked_at", "code", "cause")


def _columns() -> Iterator["sa.Column[Any]"]:
    """Make the columns, as each belongs to one table."""
    yield sa.Column(
        "attempts",
        sa.Integer(),
        nullable=False,
        server_default=sa.text("0"),
        comment="How often the subscriber was called in vain with the batch that is out.",
    )
    moment = sa.DateTime(timezone=True)
    retry = "Until when the subscriber is not called with that batch; null for at once."
    yield sa.Column("retry_at", moment, comment=retry)
    beside = "The range whose batch was parked as this one, beside the ring; null for a range of the ring."
    yield sa.Column("batch_of", sa.BigInteger(), comment=beside)
    parked = "Since when that batch is parked; null when it is not, or was resumed."
    yield sa.Column("parked_at", moment, comment=parked)
    yield sa.Column("code", sa.String(64), comment="The code of the failure for which it was parked.")
    yield sa.Column("cause", sa.Text(), comment="The same in words.")


def upgrade() -> None:
    for column in _columns():
        op.add_column("reader_range", column)
    if op.get_bind().dialect.name == "postgresql":
        completed = "When it was split or merged, or its parked batch settled; null before."
        op.alter_column("reader_range", "completed_at", comment=completed)
        op.create_table_comment(
            "reader_range", f"{OF_TABLE[:-1]}, without those of batch_of: each of these is one batch that was parked."
        )


def downgrade() -> None:
    # An older bus would read a parked batch as a part of the ring.
    beside = "SELECT id FROM reader_range WHERE batch_of IS NOT NULL"
    op.execute(f"DELETE FROM reader_stretch WHERE range_id IN ({beside})")
    op.execute("DELETE FROM reader_range WHERE batch_of IS NOT NULL")
    for name in reversed(NAMES):
        op.drop_column("reader_range", name)
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("reader_range", "completed_at", comment=OF_COMPLETED)
        op.create_table_comment("reader_range", OF_TABLE)
