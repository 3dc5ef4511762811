"""The object stores: where the data of large segments lies."""

from sqlalchemy import Column, Index, Integer, LargeBinary, Table, Text, UniqueConstraint, Uuid

from xbus.model.base import Timestamp, metadata, optional, required

object_store = Table(
    "object_store",
    metadata,
    Column("id", Integer, primary_key=True),
    required("place", Text, "A folder with its whole path, or an address such as s3://bucket/x."),
    required("mark", Uuid, "Stands in a file of the store, which so belongs to this journal."),
    optional("marked_at", Timestamp, "When that file was there for the first time; null before."),
    UniqueConstraint("place"),
    UniqueConstraint("mark"),
    comment="Where data of segments lies outside of the database. A row stays as long as any of it may be there.",
)

object_removal = Table(
    "object_removal",
    metadata,
    Column("store_id", Integer, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary(32), primary_key=True, comment="The object's name: the SHA-256 of its data."),
    optional(
        "removed_at",
        Timestamp,
        "When it was removed from the store; null before. From the row on no new segment refers to it.",
    ),
    Index("ix_object_removal_removed_at", "removed_at"),
    comment="Objects that nobody may refer to any more, until their removal is long over.",
)
