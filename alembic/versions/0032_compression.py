"""Event types say how their segments are compressed, and segments whether they are.

No segment is rewritten: those that are here stay plain. The triggers of 0016 on ``event_type`` watch all its columns.
"""

from typing import Any

import sqlalchemy as sa
import zstandard
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

DATA = "The items, each as a msgpack bin, one after the other; compressed where plain_bytes is set."
HASH = "SHA-256 of the plain data."
TABLE = "A run of consecutive items of one event, stored as it is forwarded, or compressed."

FORMER_DATA = "The items, each as a msgpack bin, one after the other."
FORMER_HASH = "SHA-256 of data."
FORMER_TABLE = "A run of consecutive items of one event, stored as it is forwarded."


def upgrade() -> None:
    how = "How its items are compressed in the journal: none or zstd."
    column = sa.Column("compress", sa.String(16), nullable=False, server_default="none", comment=how)
    op.add_column("event_type", column)
    of_plain = "The bytes of the plain data, where data is a frame of Zstandard; null where data is plain."
    op.add_column("segment", sa.Column("plain_bytes", sa.Integer(), comment=of_plain))
    _comment(DATA, HASH, TABLE)


def _comment(data: str, hash_: str, table: str) -> None:
    # SQLite has no comments.
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("segment", "data", comment=data)
        op.alter_column("segment", "hash", comment=hash_)
        op.create_table_comment("segment", table)


def downgrade() -> None:
    _decompress()
    _comment(FORMER_DATA, FORMER_HASH, FORMER_TABLE)
    op.drop_column("segment", "plain_bytes")
    op.drop_column("event_type", "compress")


def _decompress() -> None:
    """Make all segments plain, one after the other, as the older version reads no others."""
    connection = op.get_bind()
    names: list[sa.ColumnClause[Any]] = [sa.column(name) for name in ("event_id", "first_index", "data", "plain_bytes")]
    segment = sa.table("segment", *names)
    key = (segment.c.event_id, segment.c.first_index)
    # In the order of the key, so that each one is looked for behind the last one, and not from the beginning.
    next_one = sa.select(*names).where(segment.c.plain_bytes.is_not(None)).order_by(*key).limit(1)
    row = connection.execute(next_one).one_or_none()
    while row is not None:
        place = sa.and_(segment.c.event_id == row.event_id, segment.c.first_index == row.first_index)
        plain = zstandard.ZstdDecompressor().decompress(bytes(row.data))
        connection.execute(sa.update(segment).where(place).values(data=plain, plain_bytes=None))
        behind = sa.tuple_(*key) > sa.tuple_(row.event_id, row.first_index)
        row = connection.execute(next_one.where(behind)).one_or_none()
