"""Envelopes and events get headers, and events a partition key; what was sent before has none."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

OF_ENVELOPE = (
    "Its headers: a msgpack map, at most 4 KiB, as xbus.headers packs it; null for none, and once they are removed."
)
OF_EVENT = "As those of an envelope, for this event alone."
HASH = (
    "SHA-256 over its events in order: type name, zero byte, item count as 8 bytes big endian, then the hashes of its "
    "segments in index order. Where it or an event has headers or a partition key, it covers these too: see "
    "xbus.broker.journal.log.segments. Null unless received."
)
PARTITION_KEY = "Names what it is about, as a client's number; null for none."


def upgrade() -> None:
    op.add_column("envelope", sa.Column("headers", sa.LargeBinary(), comment=OF_ENVELOPE))
    op.add_column("event", sa.Column("headers", sa.LargeBinary(), comment=OF_EVENT))
    op.add_column("event", sa.Column("partition_key", sa.String(255), comment=PARTITION_KEY))
    if op.get_context().dialect.name == "postgresql":
        op.alter_column("envelope", "hash", comment=HASH)
