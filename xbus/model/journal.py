"""The log: what emitters sent and the bus acknowledged, and its table of contents.

By the latter nobody reads all of the log to find a rare event.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
)

from xbus.model.base import Counter, Timestamp, metadata, one_of, optional, partial_index, required

envelope = Table(
    "envelope",
    metadata,
    Column("id", Uuid, primary_key=True),
    required("emitter_id", ForeignKey("emitter.id")),
    one_of("state", ("open", "received", "cancelled"), "xbus.states.EnvelopeState; received and cancelled are final."),
    required("opened_at", Timestamp),
    optional("closed_at", Timestamp, "When it was sealed or cancelled; null while open."),
    optional(
        "position",
        BigInteger,
        "Its place in the log: 1, 2, 3 and so on without a gap, in commit order; null unless received.",
        unique=True,
    ),
    optional("events", Integer, "How many events it holds; null unless received."),
    optional("items", BigInteger, "How many items its events hold together; null unless received."),
    optional("bytes", BigInteger, "How many bytes its segments' data take together; null unless received."),
    optional(
        "hash",
        LargeBinary(32),
        "SHA-256 over its events in order: type name, zero byte, item count as 8 bytes big endian, then the "
        "hashes of its segments in index order. Where it or an event has headers or a partition key, it covers these "
        "too: see xbus.broker.journal.log.segments. Null unless received.",
    ),
    optional("origin_id", Uuid, "The envelope that this one repeats; null for what an emitter sent."),
    optional(
        "ordering_key",
        String(255),
        "Roles that want order get envelopes of one key one after the other, in position order; null for none, "
        "which is a key too.",
    ),
    optional(
        "idempotency_key",
        Text,
        "What its emitter calls it: its id was made of this and the emitter's. Null for none. The key of a "
        "removed envelope is in spent_key.",
    ),
    optional(
        "content_hash",
        LargeBinary(32),
        "What hash would be if each event were one segment: the same however it was cut, so that a repeat can "
        "be compared with it when they are gone; only of a received envelope with an idempotency key.",
    ),
    optional(
        "headers",
        LargeBinary,
        "Its headers: a msgpack map, at most 4 KiB, as xbus.headers packs it; null for none, and once they are "
        "removed.",
    ),
    optional(
        "pruned_at",
        Timestamp,
        "When its removal began, long after it was settled for all; null while all of it is here.",
    ),
    Index("ix_envelope_opened_at", "opened_at", "id"),
    partial_index("ix_envelope_open", "state", "opened_at", where="state = 'open'"),
    partial_index("ix_envelope_cancelled", "closed_at", where="state = 'cancelled' AND pruned_at IS NULL"),
    comment="What its emitter wants delivered all or nothing.",
)

event = Table(
    "event",
    metadata,
    Column("id", Uuid, primary_key=True),
    required("envelope_id", ForeignKey("envelope.id")),
    required("number", Integer, "1 for the envelope's first event, and so on."),
    required("event_type_id", ForeignKey("event_type.id")),
    required("graph_id", ForeignKey("graph.id"), "The type's current graph when it was started."),
    required("estimate", BigInteger, "How many items its emitter expected to send; a hint only."),
    optional("items", BigInteger, "How many items it holds; null until it is ended."),
    optional(
        "origin_id",
        Uuid,
        "The event whose segments hold its items, where its envelope repeats another; null where they are its own.",
    ),
    optional("headers", LargeBinary, "As those of an envelope, for this event alone."),
    optional("partition_key", String(255), "Names what it is about, as a client's number; null for none."),
    optional("data_hash", LargeBinary(32), "As hash of a segment; null where data is."),
    optional("plain_bytes", Integer, "As that of a segment."),
    # The last column: SQLite reads no other one through it.
    optional(
        "data",
        LargeBinary,
        "Its items where they are one small segment, as in a segment's row; null where it has rows in segment, "
        "or no items, or they are removed.",
    ),
    UniqueConstraint("envelope_id", "number"),
    partial_index("ix_event_origin_id", "origin_id", where="origin_id IS NOT NULL"),
    # The newest events of a key, for types that keep only these.
    partial_index("ix_event_partition_key", "event_type_id", "partition_key", where="partition_key IS NOT NULL"),
    comment="Items of one type inside an envelope.",
)

segment = Table(
    "segment",
    metadata,
    Column("event_id", ForeignKey("event.id"), primary_key=True),
    Column("first_index", BigInteger, primary_key=True, comment="The index of its first item; an event starts at 0."),
    required("items", Integer, "How many items it holds."),
    required(
        "data",
        LargeBinary,
        "The items, each as a msgpack bin, one after the other; compressed where plain_bytes is set. Where "
        "store_id is set, the name of the object that holds them instead: their hash.",
    ),
    required("hash", LargeBinary(32), "SHA-256 of the plain data."),
    optional(
        "indices",
        JSON(none_as_null=True),
        "For each item the list of indices it was made of, where they are not simply "
        "first_index, first_index + 1 and so on; else null.",
    ),
    optional(
        "plain_bytes",
        Integer,
        "The bytes of the plain data, where data is a frame of Zstandard or lies outside; null where data is plain.",
    ),
    optional("store_id", Integer, "The row of object_store that tells where the data lies; null where it is here."),
    # Asked for each object that somebody wants to remove.
    partial_index("ix_segment_hash", "hash", where="store_id IS NOT NULL"),
    comment="A run of consecutive items of one event, stored as it is forwarded, compressed, or in an object store. "
    "The only segment of a small event lies in that event's row; log_segment has both.",
)

views = MetaData()
"""Views, which the baseline makes. Readers of the log from outside read them and no table."""

log_event = Table(
    "log_event",
    views,
    optional("position", BigInteger, "That of its envelope in the log."),
    optional("number", Integer, "Its place in the envelope, from 1."),
    Column("event_id", Uuid),
    Column("envelope_id", Uuid),
    Column("event_type_id", BigInteger),
    optional("event_type", String(255), "The name of its type."),
    Column("graph_id", BigInteger),
    optional("items", BigInteger, "How many it holds."),
    optional("segments_id", Uuid, "The event_id of its segments: its own, or that of the event that it repeats."),
    Column("partition_key", String(255)),
    Column("headers", LargeBinary),
    optional("emitter", String(255), "The login of the emitter."),
    optional("sealed_at", Timestamp, "When the bus received its envelope."),
    optional("envelope_bytes", BigInteger, "How many bytes the items of its envelope take."),
    Column("ordering_key", String(255)),
    Column("idempotency_key", Text),
    Column("envelope_headers", LargeBinary),
    optional("pruned_at", Timestamp, "When the removal of its items began; null while they are here."),
    comment="The events of all received envelopes.",
)

log_segment = Table(
    "log_segment",
    views,
    Column("event_id", Uuid),
    Column("first_index", BigInteger),
    Column("items", Integer),
    Column("data", LargeBinary),
    Column("hash", LargeBinary(32)),
    Column("indices", JSON(none_as_null=True)),
    Column("plain_bytes", Integer),
    Column("store_id", Integer),
    comment="All segments, wherever they lie, with the columns of the table segment. Ask it alone, by event_id: beside "
    "other tables SQLite reads all of it.",
)

spent_key = Table(
    "spent_key",
    metadata,
    Column("envelope_id", Uuid, primary_key=True, comment="That of an envelope with a key which is removed."),
    required("emitter_id", ForeignKey("emitter.id")),
    required("key", Text, "Its idempotency key."),
    required("closed_at", Timestamp, "When it was sealed or cancelled."),
    optional("position", BigInteger, "The receipt, and so are the next columns; null if it was cancelled."),
    Column("events", Integer),
    Column("items", BigInteger),
    Column("bytes", BigInteger),
    Column("hash", LargeBinary(32)),
    optional("content_hash", LargeBinary(32), "As in envelope: a repeated envelope is compared with it."),
    # Asked for the profiles alone whose keys are not kept for ever.
    Index("ix_spent_key_emitter_id", "emitter_id", "closed_at"),
    comment="The keys of removed envelopes, so that nothing comes twice. They outlive retention.",
)

envelope_role = Table(
    "envelope_role",
    metadata,
    Column("envelope_id", ForeignKey("envelope.id"), primary_key=True),
    Column("role_id", ForeignKey("role.id"), primary_key=True),
    optional(
        "replay",
        String(255),
        "The name of the replay that sent it to the role again; null for a repeat of a parked envelope.",
    ),
    comment="An envelope that is in here is owed to these roles only; any other to all that its graphs lead to.",
)

reply = Table(
    "reply",
    metadata,
    Column("event_id", ForeignKey("event.id"), primary_key=True),
    required("envelope_id", ForeignKey("envelope.id"), index=True),
    one_of("state", ("asked", "held", "given", "failed"), "xbus.states.ReplyState."),
    required("until", Timestamp, "When nobody waits for it any more."),
    optional("role_id", ForeignKey("role.id"), "Who gave it; null where nobody did."),
    optional("data", LargeBinary, "The reply in msgpack; null without one."),
    optional("code", String(64), "Why no reply exists; null with a reply."),
    optional("cause", Text, "Why no reply exists, in a sentence; null with a reply."),
    # Of all states: SQLite would not use an index of the open ones for a search for one of them.
    Index("ix_reply_state", "state"),
    comment="What the emitter of an event that wants an immediate reply was, or is to be, answered.",
)

head = Table(
    "head",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True, comment="Always 1."),
    required("position", BigInteger, "The position of the envelope sealed last; 0 before the first."),
    comment="One row: where the log ends. Updated in each sealing transaction, which makes positions gapless.",
)

writer = Table(
    "writer",
    metadata,
    Column(
        "name", String(64), primary_key=True, comment="Which part of the broker writes: front, back, or both as one."
    ),
    required("epoch", Counter, "Grows by one with each start of that part."),
    required(
        "group_number",
        BigInteger,
        "The number of the last group of calls that was committed: tells after a lost connection whether a "
        "COMMIT took place.",
    ),
    required(
        "stored_bytes",
        BigInteger,
        "By how many bytes it made the segments' data grow, or shrink by removing some. The sum over all rows "
        "is what they take.",
        server_default="0",
    ),
    optional("holder", Text, "Which process writes: its id, its host, and since when; null if none ever has."),
    comment="One row for each process that writes to the journal.",
)

broker = Table(
    "broker",
    metadata,
    Column(
        "name", String(255), primary_key=True, comment="As it was configured, or its host and the port of its front."
    ),
    required("front", Text, comment="Where emitters connect to."),
    required("back", Text, comment="Where recipients connect to."),
    required("version", String(64), comment="Of its program."),
    required("process", Text, comment="Its id, its host, and since when it runs."),
    required(
        "settings", Text, comment="What all brokers of the journal must have in common, in JSON.", server_default="{}"
    ),
    required("looked_at", Timestamp, comment="When it looked at the lease last, by the database's clock."),
    comment="The brokers of the journal: one leads, the others stand by.",
)

lease = Table(
    "lease",
    metadata,
    Column("what", String(64), primary_key=True, comment="What its holder may do; broker: lead."),
    Column("broker", String(255), comment="The name of its holder; null if nobody holds it."),
    required("epoch", Counter, comment="Grows by one with each change of hands."),
    required("until", Timestamp, comment="Its end, by the database's clock; renewed each second."),
    Column("since", Timestamp, comment="When its holder took it."),
    Column("successor", String(255), comment="The name of the broker to which it is to be handed over, if any."),
    comment="Who leads, and until when. It is about time alone: the table writer keeps others from writing.",
)

loss = Table(
    "loss",
    metadata,
    Column("id", Counter, primary_key=True),
    required("at", Timestamp, "When a broker noticed it."),
    required("writer", String(64), "The broker that noticed it, as in the table writer."),
    required("commits", BigInteger, "The commits of that broker that are missing."),
    required("known", BigInteger, "The position up to which that broker knew the log."),
    required("found", BigInteger, "The position where the log ended when it noticed that."),
    optional("acknowledged_at", Timestamp, "When a person acknowledged it; health tells of it until then."),
    comment="Each time that the journal went back: acknowledged data is gone, as after a fail-over.",
)

contents = Table(
    "contents",
    metadata,
    Column("graph_id", ForeignKey("graph.id"), primary_key=True),
    Column(
        "block",
        BigInteger,
        primary_key=True,
        autoincrement=False,
        comment="0 for the positions 1 to 1024, 1 for 1025 to 2048, and so on.",
    ),
    required(
        "positions",
        LargeBinary,
        "Envelopes of the block that hold events of the graph: bit 0 of byte 0 stands for its first position, "
        "bit 1 for its second, ... Some of them may have been removed since.",
    ),
    required("events", BigInteger, "How many events of the graph the block held when listed."),
    required("items", BigInteger, "How many items these hold together."),
    required("oldest_at", Timestamp, "When the first of these envelopes was sealed."),
    required("newest_at", Timestamp, "When the last of them was."),
    Index("ix_contents_block", "block"),
    comment="The log's table of contents. A block is listed some time after its last envelope was sealed, all at once.",
)

contents_end = Table(
    "contents_end",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True, comment="Always 1."),
    required(
        "position",
        BigInteger,
        "All blocks up to here are listed; what lies above has to be read. The end of a block, or 0.",
    ),
    comment="One row: how far the table of contents reaches. Not a part of head, which sealing keeps busy.",
)

ENVELOPE_HEAD = (envelope.c.ordering_key, envelope.c.idempotency_key, envelope.c.headers)
"""The columns of an ``EnvelopeHead``, in the order of its fields."""

REPEATED_HEAD = tuple(column for column in ENVELOPE_HEAD if column is not envelope.c.idempotency_key)
"""The columns of a head that a repeat takes over from its origin. A key stands for the first envelope alone."""

EVENT_TAGS = (event.c.headers, event.c.partition_key)
"""The columns of ``EventTags``, in the order of their fields."""
