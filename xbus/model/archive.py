"""Tables of archived items: in which Parquet files the items of settled envelopes lie."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, Table, Text, Uuid

from xbus.model.base import Timestamp, metadata, one_of, partial_index, required

archive_run = Table(
    "archive_run",
    metadata,
    Column("id", Uuid, primary_key=True),
    required("started_at", Timestamp),
    required("lease_until", Timestamp, comment="Until then it must have given a sign of life."),
    Column("ended_at", Timestamp, comment="When it ended, or another took its place; null while it goes on."),
    partial_index("ix_archive_run_open", "ended_at", where="ended_at IS NULL"),
    comment="A command that archives or restores; one goes on at a time.",
)

archive_file = Table(
    "archive_file",
    metadata,
    Column("id", Uuid, primary_key=True),
    required("run_id", ForeignKey("archive_run.id"), comment="Which run writes it, or wrote it."),
    required("event_type_id", ForeignKey("event_type.id"), comment="All its events are of this type."),
    required("location", Text, comment="Its whole address, a path or a URI."),
    one_of(
        "state",
        ("writing", "kept"),
        comment="writing: whatever is there does not count, and is removed if its run dies; kept: checked, for good.",
    ),
    required("first_position", BigInteger, comment="The lowest position of an envelope in it."),
    required("last_position", BigInteger, comment="The highest position of an envelope in it."),
    required("items", BigInteger, comment="How many rows it has, one for each item."),
    Column("bytes", BigInteger, comment="How large it is; null while it is written."),
    Index("ix_archive_file_event_type_id_last_position", "event_type_id", "last_position"),
    Index("ix_archive_file_state", "state"),
    comment="A Parquet file of items of one event type and one day.",
)

archived_envelope = Table(
    "archived_envelope",
    metadata,
    Column("envelope_id", ForeignKey("envelope.id"), primary_key=True),
    required("archived_at", Timestamp, comment="From when on its files are what counts."),
    Column(
        "removed_at", Timestamp, comment="When the last of its segments was removed; null before that, or restored."
    ),
    Column("restored_at", Timestamp, comment="Since when its segments are all there again; null where they are not."),
    partial_index("ix_archived_envelope_due", "archived_at", where="removed_at IS NULL"),
    comment="A received envelope whose items are in files. Its other rows stay.",
)

archived_event = Table(
    "archived_event",
    metadata,
    Column("event_id", ForeignKey("event.id"), primary_key=True),
    required("file_id", ForeignKey("archive_file.id"), comment="Where all its items are."),
    required("segments", Integer, comment="How many segments they make."),
    required("hash", LargeBinary(32), comment="SHA-256 over the hashes of its segments in index order."),
    Index("ix_archived_event_file_id", "file_id"),
    comment="An event whose items are in a file; an event without items is in none.",
)
