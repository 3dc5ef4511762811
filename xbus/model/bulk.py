"""Tables of bulk workers, which read an event's segments and write its output by themselves."""

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, LargeBinary, String, Table, Text, Uuid

from xbus.model.base import Timestamp, metadata, one_of, optional, partial_index, required

bulk_attempt = Table(
    "bulk_attempt",
    metadata,
    Column("id", Uuid, primary_key=True),
    required("event_id", ForeignKey("event.id")),
    required("node_id", ForeignKey("node.id"), "The node of the event's graph that it is for."),
    required("role_id", ForeignKey("role.id"), "The worker role that it was handed over to."),
    one_of("state", ("building", "ready", "failed", "abandoned"), "xbus.states.AttemptState."),
    required("started_at", Timestamp),
    required("lease_until", Timestamp, "Until then its worker must have given a sign of life."),
    required("progress", Float, "How far it is, from 0 to 1, as it said last.", server_default="0"),
    optional("ended_at", Timestamp, "When it came out of state building."),
    optional("code", String(64), "Why it came to nothing; null where it did not."),
    optional("cause", Text, "Why it came to nothing, in a sentence; null where it did not."),
    optional("items", BigInteger, "How many items its segments hold together; null unless ready."),
    optional("bytes", BigInteger, "How many bytes its segments' data take together; null unless ready."),
    optional(
        "hash",
        LargeBinary(32),
        "SHA-256 over the hashes of its segments, in the order of part and number; null unless ready.",
    ),
    # This makes an output unique: at most one attempt counts for an event and a node.
    partial_index("ix_bulk_attempt_live", "event_id", "node_id", unique=True, where="state IN ('building', 'ready')"),
    Index("ix_bulk_attempt_event_id", "event_id"),
    Index("ix_bulk_attempt_state", "state"),
    comment="An attempt of a bulk worker to make the output of a node for an event; what is ready serves every run.",
)

bulk_segment = Table(
    "bulk_segment",
    metadata,
    Column("attempt_id", ForeignKey("bulk_attempt.id"), primary_key=True),
    Column("part", Integer, primary_key=True, comment="Parts are written side by side, each in one transaction."),
    Column("number", Integer, primary_key=True, comment="Its place in the part, from 0."),
    required("items", Integer, "How many items it holds."),
    required("hash", LargeBinary(32), "SHA-256 of data."),
    required(
        "first_index",
        BigInteger,
        "The index of the item that its first item was made of, where sources is null; else 0.",
    ),
    optional(
        "sources",
        LargeBinary,
        "For each item, as 8 bytes little endian, the index of the event's item that it was made of; -1 where "
        "it was made of several, or of none in particular. Null where they are first_index, first_index + 1 and so on.",
    ),
    # The last column, because SQLite reads through all of it to get at the columns behind it.
    required("data", LargeBinary, "As in segment: each item as a msgpack bin."),
    comment="A run of consecutive items of a bulk worker's output; it counts as soon as its attempt is ready.",
)
