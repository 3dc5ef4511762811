"""Data of large segments may lie in an object store, outside of the database.

No segment is rewritten: those that are here keep their data. ``store_id`` has no foreign key, as SQLite would have to
rebuild the table; rows of ``object_store`` are never deleted.
"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

DATA = (
    "The items, each as a msgpack bin, one after the other; compressed where plain_bytes is set. Where "
    "store_id is set, the name of the object that holds them instead: their hash."
)
PLAIN_BYTES = (
    "The bytes of the plain data, where data is a frame of Zstandard or lies outside; null where data is plain."
)
TABLE = "A run of consecutive items of one event, stored as it is forwarded, compressed, or in an object store."

FORMER_DATA = "The items, each as a msgpack bin, one after the other; compressed where plain_bytes is set."
FORMER_PLAIN_BYTES = "The bytes of the plain data, where data is a frame of Zstandard; null where data is plain."
FORMER_TABLE = "A run of consecutive items of one event, stored as it is forwarded, or compressed."


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "object_store",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column(
            "place",
            sa.Text(),
            nullable=False,
            comment="A folder with its whole path, or an address such as s3://bucket/x.",
        ),
        sa.Column(
            "mark",
            sa.Uuid(),
            nullable=False,
            comment="Stands in a file of the store, which so belongs to this journal.",
        ),
        sa.Column("marked_at", moment, comment="When that file was there for the first time; null before."),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_object_store")),
        sa.UniqueConstraint("place", name=op.f("uq_object_store_place")),
        sa.UniqueConstraint("mark", name=op.f("uq_object_store_mark")),
        comment="Where data of segments lies outside of the database. A row stays as long as any of it may be there.",
    )
    op.create_table(
        "object_removal",
        sa.Column("store_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("hash", sa.LargeBinary(32), nullable=False, comment="The object's name: the SHA-256 of its data."),
        sa.Column(
            "removed_at",
            moment,
            comment="When it was removed from the store; null before. From the row on no new segment refers to it.",
        ),
        sa.PrimaryKeyConstraint("store_id", "hash", name=op.f("pk_object_removal")),
        comment="Objects that nobody may refer to any more, until their removal is long over.",
    )
    op.create_index("ix_object_removal_removed_at", "object_removal", ["removed_at"])
    where = "The row of object_store that tells where the data lies; null where it is here."
    op.add_column("segment", sa.Column("store_id", sa.Integer(), comment=where))
    outside = sa.text("store_id IS NOT NULL")
    op.create_index("ix_segment_hash", "segment", ["hash"], sqlite_where=outside, postgresql_where=outside)
    _comment(DATA, PLAIN_BYTES, TABLE)


def _comment(data: str, plain_bytes: str, table: str) -> None:
    # SQLite has no comments.
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("segment", "data", comment=data)
        op.alter_column("segment", "plain_bytes", comment=plain_bytes)
        op.create_table_comment("segment", table)


def downgrade() -> None:
    outside = sa.select(sa.func.count()).select_from(sa.text("segment")).where(sa.text("store_id IS NOT NULL"))
    if op.get_bind().execute(outside).scalar_one():
        raise RuntimeError("segments lie in object stores, which the older version can't read: remove them first")
    _comment(FORMER_DATA, FORMER_PLAIN_BYTES, FORMER_TABLE)
    op.drop_index("ix_segment_hash", "segment")
    op.drop_column("segment", "store_id")
    op.drop_table("object_removal")
    op.drop_table("object_store")
