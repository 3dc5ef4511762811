"""Tables of archived items: in which Parquet files the items of settled envelopes lie."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, Table, Text, Uuid

from xbus.model.base import Timestamp, metadata, one_of, optional, partial_index, required

archive_run = Table(
    "archive_run",
    metadata,
    Column("id", Uuid, primary_key=True),
    required("started_at", Timestamp),
    required("lease_until", Timestamp, "Until then it must have given a sign of life."),
    optional("ended_at", Timestamp, "When it ended, or another took its place; null while it goes on."),
    partial_index("ix_archive_run_open", "ended_at", where="ended_at IS NULL"),
    comment="A command that archives or restores; one goes on at a time.",
)

archive_file = Table(
    "archive_file",
    metadata,
    Column("id", Uuid, primary_key=True),
    required("run_id", ForeignKey("archive_run.id"), "Which run writes it, or wrote it."),
    required("event_type_id", ForeignKey("event_type.id"), "All its events are of this type."),
    required("location", Text, "Its whole address, a path or a URI."),
    one_of(
        "state",
        ("writing", "kept"),
        "writing: whatever is there does not count, and is removed if its run dies; kept: checked, for good.",
    ),
    required("first_position", BigInteger, "The lowest position of an envelope in it."),
    required("last_position", BigInteger, "The highest position of an envelope in it."),
    required("items", BigInteger, "How many rows it has, one for each item."),
    optional("bytes", BigInteger, "How large it is; null while it is written."),
    Index("ix_archive_file_event_type_id_last_position", "event_type_id", "last_position"),
    Index("ix_archive_file_state", "state"),
    comment="A Parquet file of items of one event type and one day.",
)

archived_envelope = Table(
    "archived_envelope",
    metadata,
    Column("envelope_id", ForeignKey("envelope.id"), primary_key=True),
    required("archived_at", Timestamp, "From when on its files are what counts."),
    optional("removed_at", Timestamp, "When the last of its segments was removed; null before that, or restored."),
    optional("restored_at", Timestamp, "Since when its segments are all there again; null where they are not."),
    partial_index("ix_archived_envelope_due", "archived_at", where="removed_at IS NULL"),
    comment="A received envelope whose items are in files. Its other rows stay.",
)

archived_event = Table(
    "archived_event",
    metadata,
    Column("event_id", ForeignKey("event.id"), primary_key=True),
    required("file_id", ForeignKey("archive_file.id"), "Where all its items are."),
    required("segments", Integer, "How many segments they make."),
    required("hash", LargeBinary(32), "SHA-256 over the hashes of its segments in index order."),
    Index("ix_archived_event_file_id", "file_id"),
    comment="An event whose items are in a file; an event without items is in none.",
)
