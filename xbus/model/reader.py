"""Tables of readers, whose programs read the log at their own pace: their settings, their ranges, and their history.

A reader is a row of ``service`` of the kind ``reader``; its programs log in by the roles of that service. A place in
the log has three numbers: an envelope's position, the index of its event, and the index of the next item to be read.
"""

from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, String, Table, Text, Uuid, true

from xbus.model.base import Counter, Timestamp, flag, metadata, optional, required

HASH = String(16)
"""A 64-bit hash as 16 hexadecimal digits: both databases keep all of it, and sort it as a number."""

reader = Table(
    "reader",
    metadata,
    Column("service_id", ForeignKey("service.id"), primary_key=True, autoincrement=False),
    required("ranges", Integer, "With how many ranges it began.", otherwise="8"),
    required("lease", Float, "Seconds after which a range of a silent program is given away.", otherwise="10"),
    required("batch_items", Integer, "The most items of a batch.", otherwise="10000"),
    required("batch_bytes", Integer, "The bytes of items at which a batch ends.", otherwise="4194304"),
    required("batch_wait", Float, "Seconds that a batch waits for more items; 0 for none.", otherwise="0"),
    required("keeps", Boolean(create_constraint=False), "Whether retention waits for it.", server_default=true()),
    optional("detached_at", Timestamp, "Since when retention does not wait for it, as it lags too far; or null."),
    comment="The settings of a reader.",
)

reader_event_type = Table(
    "reader_event_type",
    metadata,
    Column("service_id", ForeignKey("reader.service_id", ondelete="CASCADE"), primary_key=True),
    Column("event_type_id", ForeignKey("event_type.id"), primary_key=True),
    optional("since", BigInteger, "From which position on the reader gets events of the type; null for all."),
    optional("until", BigInteger, "The last position, of a type that the reader left; null for its present types."),
    comment="The event types that a reader reads.",
)

reader_range = Table(
    "reader_range",
    metadata,
    Column("id", Counter, primary_key=True),
    required("service_id", ForeignKey("reader.service_id")),
    required("first", HASH, "The first hash of the range, as 16 hexadecimal digits."),
    required("last", HASH, "The last hash of the range."),
    optional("owner", Uuid, "The program that reads it; null for none."),
    optional("role_id", ForeignKey("role.id"), "By which role its owner logged in."),
    required(
        "counter",
        BigInteger,
        "Grows with each change of its owner or its place, so that what the former owner says is refused.",
        default=0,
        otherwise="0",
    ),
    optional("expires_at", Timestamp, "When the lease ends, as last written: the back knows of later calls."),
    flag("handed_out", "Whether a batch is out, so that what is read next is a repeat of it."),
    required("skipped", BigInteger, "Envelopes that retention removed.", otherwise="0"),
    optional("settled_at", Timestamp, "When a batch of it was settled last."),
    optional("completed_at", Timestamp, "When it was split or merged, or its parked batch settled; null before."),
    required(
        "attempts", Integer, "How often the subscriber was called in vain with the batch that is out.", otherwise="0"
    ),
    optional("retry_at", Timestamp, "Until when the subscriber is not called with that batch; null for at once."),
    optional(
        "batch_of",
        BigInteger,
        "The range whose batch was parked as this one, beside the ring; null for a range of the ring.",
    ),
    optional("parked_at", Timestamp, "Since when that batch is parked; null when it is not, or was resumed."),
    optional("code", String(64), "The code of the failure for which it was parked."),
    optional("cause", Text, "The same in words."),
    Index("ix_reader_range_service_id", "service_id", "completed_at"),
    comment="A stretch of the ring of hashes that one program at a time reads. The ranges in use tile the ring, "
    "without those of batch_of: each of these is one batch that was parked.",
)

reader_stretch = Table(
    "reader_stretch",
    metadata,
    Column("range_id", ForeignKey("reader_range.id", ondelete="CASCADE"), primary_key=True),
    Column("first", HASH, primary_key=True, comment="The first hash of the stretch."),
    required("last", HASH, "The last hash of the stretch."),
    required("position", BigInteger, "The place of the next item to be read: the envelope."),
    required("event", BigInteger, "The index of its event."),
    required("item", BigInteger, "The index of its item."),
    optional("to_position", BigInteger, "Where the batch that is out ends; null where none is."),
    optional("to_event", BigInteger, "The index of the event there."),
    optional("to_item", BigInteger, "The index of the item there, which is not in the batch."),
    comment="What stands at one place: mostly a whole range. One that was merged has several until they have met.",
)

reader_move = Table(
    "reader_move",
    metadata,
    Column("id", Counter, primary_key=True),
    required("service_id", ForeignKey("reader.service_id")),
    required("act", Uuid, "The same for all that was moved at once."),
    required("at", Timestamp),
    required("who", String(255), "The login of the program, or the person."),
    required("kind", String(16), "checkpoint, move, undo, split, merge, skip, park or pass."),
    required("reason", Text, "As the person gave it.", default="", otherwise="''"),
    optional("undoes", Uuid, "The act that this one undoes."),
    required("first", HASH, "The first hash of the stretch that was moved."),
    required("last", HASH, "The last hash of it."),
    *(
        required(f"{side}_{part}", BigInteger, f"{words}: the {part}.")
        for side, words in (("from", "The place before"), ("to", "The place after"))
        for part in ("position", "event", "item")
    ),
    Index("ix_reader_move_service_id", "service_id", "id"),
    Index("ix_reader_move_at", "at"),
    comment="The history of checkpoints, and of what people did to a reader's places.",
)
