"""Tables of the configuration: which emitter may send which types, and where these go.

An edit by SQL counts the version up by triggers, which the migrations make.

Rows that the journal refers to are never deleted: ``removed_at`` takes them out of use, and naming them again brings
them back. Graphs are immutable: an edit adds a version, and each event keeps the version it was started with.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    func,
)
from sqlalchemy.engine.default import DefaultExecutionContext

from xbus.model.base import Counter, Timestamp, flag, metadata, one_of, optional, required


def _same_as_name(context: DefaultExecutionContext) -> str:
    """Give a new row's name, which the column keeps whatever the row is called later."""
    parameters: dict[str, str] = context.get_current_parameters()  # type: ignore[no-untyped-call]
    return parameters["name"]


configuration = Table(
    "configuration",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True, comment="Always 1."),
    required(
        "version",
        Counter,
        "Grows by one with every change to the tables of this file, so that a running broker notices.",
    ),
    flag(
        "changing",
        "Whether the present transaction itself counts the version up, so that triggers need not. Never committed.",
    ),
    required(
        "graph_edits",
        Integer,
        "How often graphs were edited by SQL: a running broker reads all of them anew.",
        server_default="0",
    ),
    required("bus", String(32), "A random id of the bus, the same in all copies of its journal."),
    required(
        "oldest_schema",
        String(64),
        "Programs for this schema, and for later ones, may use it.",
        server_default="0100",
    ),
    comment="One row: the version of the whole configuration.",
)

event_type = Table(
    "event_type",
    metadata,
    Column("id", Counter, primary_key=True),
    required("name", String(255), unique=True),
    flag("immediate_reply", "Whether end_event waits for the consumer's reply."),
    one_of(
        "bad_items",
        ("envelope", "isolate"),
        "What is parked where a recipient refuses items by their indices: the whole envelope, or those alone.",
        server_default="envelope",
    ),
    required(
        "max_isolated",
        Integer,
        "With more items than this refused in one event the whole envelope is parked all the same.",
        server_default="100",
    ),
    required(
        "secret",
        Text,
        "The fields of its items that people do not see: paths of keys with dots between them, each on a line.",
        otherwise="''",
    ),
    optional(
        "keep", Float, "Seconds for which its settled events stay; infinite for ever, null for what is said elsewhere."
    ),
    optional("keep_bytes", BigInteger, "Bytes of its newest events that stay; null for no such limit."),
    optional(
        "keep_last_per_key",
        Integer,
        "How many of the newest events of each partition key stay; null for no such limit.",
    ),
    optional(
        "archive_after",
        Float,
        "Seconds after which the broker moves its settled events into the archive; null for never.",
    ),
    required(
        "compress", String(16), "How its items are compressed in the journal: none or zstd.", server_default="none"
    ),
    required(
        "first_name",
        String(255),
        "The name that it was made with, for good: hashes of envelopes hold it.",
        otherwise="''",
        default=_same_as_name,
    ),
    optional(
        "publisher_id",
        BigInteger,
        "The emitter that sent the first event of a type that a program made. Its profile need not allow the "
        "type; null where only profiles allow it.",
    ),
    flag("is_topic", "Whether a program made it, by sending to it or by subscribing: one emitter alone publishes it."),
    optional("removed_at", Timestamp, "When it was taken out of use; null while in use."),
    comment="The name of a kind of data; all that the bus knows of what an event holds.",
)

profile_event_type = Table(
    "profile_event_type",
    metadata,
    Column("profile_id", ForeignKey("emitter_profile.id", ondelete="CASCADE"), primary_key=True),
    Column("event_type_id", ForeignKey("event_type.id"), primary_key=True),
    comment="Which event types a profile allows.",
)

service = Table(
    "service",
    metadata,
    Column("id", Counter, primary_key=True),
    required("name", String(255), unique=True),
    required(
        "key",
        String(300),
        "How a running broker knows it, for good: the name that it was made with, unless another has that key.",
        index=True,
        unique=True,
        otherwise="''",
        default=_same_as_name,
    ),
    one_of(
        "kind",
        ("worker", "consumer", "reader", "runner", "gateway"),
        "worker: answers items, one of its roles gets an event; consumer: ends the line, all its roles get it; "
        "reader: reads the log at its own pace, no node asks for it; runner: its programs run bots; gateway: they call "
        "subscribers.",
    ),
    one_of(
        "failures",
        ("shared", "own"),
        "shared: a refusal by one of its consumers stops the envelope for all who lack it; own: it is nobody "
        "else's matter.",
        server_default="shared",
    ),
    optional("attempts", Integer, "How often an envelope is tried before it is parked; null for [back]'s."),
    optional("first_delay", Float, "Seconds before the second attempt, doubled each time; null for [back]'s."),
    optional("longest_delay", Float, "The most that a delay grows to, in seconds; null for [back]'s."),
    optional("jitter", Float, "By which part a delay is made longer or shorter at random, 0 to 1; null for [back]'s."),
    optional("removed_at", Timestamp, "When it was taken out of use; null while in use."),
    comment="What a node of a graph asks for, or a reader of the log; its roles provide it.",
)

emitting_service = Table(
    "emitting_service",
    metadata,
    Column("service_id", ForeignKey("service.id"), primary_key=True),
    required("event_type_id", ForeignKey("event_type.id"), "As which what comes is emitted."),
    comment="A service that the bus itself provides, for one node that emits: it has one role, and one emitter.",
)

role = Table(
    "role",
    metadata,
    Column("id", Counter, primary_key=True),
    required("login", String(255), unique=True),
    optional("password_hash", String(255), "Argon2; null until a password is set: nobody can log in."),
    required("service_id", ForeignKey("service.id")),
    flag("ordered", "Whether it gets one envelope at a time, those of one ordering key in position order."),
    optional(
        "absent_minutes",
        Float,
        "How long it may be away while something waits for it before health tells of it; infinite for never, "
        "null for [health]'s.",
    ),
    optional(
        "parked_minutes",
        Float,
        "How long something may be parked for it before health tells of it; infinite for never, null for [health]'s.",
    ),
    required("instances", Integer, "So many programs may serve it side by side.", otherwise="1"),
    flag("standby", "Whether further programs wait, registered, until one that serves it is lost."),
    required(
        "public_keys",
        Text,
        "The keys by which it may log in over encrypted connections, in Z85 with blanks between them.",
        otherwise="''",
    ),
    optional("detached_at", Timestamp, "When an operator took it off the bus; null while it is owed envelopes."),
    optional("removed_at", Timestamp, "When it was taken out of use; null while in use."),
    comment="What a program logs in as to provide a service; several may do so side by side.",
)

graph = Table(
    "graph",
    metadata,
    Column("id", Counter, primary_key=True),
    required("event_type_id", ForeignKey("event_type.id")),
    required("number", Integer, "1 for the type's first version; the highest is the current one.", otherwise="1"),
    required("created_at", Timestamp, server_default=func.now()),
    UniqueConstraint("event_type_id", "number"),
    comment="An immutable version of the way that events of a type take. A type without nodes has an empty version.",
)

node = Table(
    "node",
    metadata,
    Column("id", Counter, primary_key=True),
    required("graph_id", ForeignKey("graph.id"), index=True),
    required("name", String(255)),
    required("service_id", ForeignKey("service.id")),
    flag("aside", "Whether it gets only items whose worker names the event type as which it emits."),
    UniqueConstraint("graph_id", "name"),
    comment="A place in a graph; one that no edge leads to is a start node and gets the items as emitted.",
)

edge = Table(
    "edge",
    metadata,
    Column("parent_id", ForeignKey("node.id"), primary_key=True),
    Column("child_id", ForeignKey("node.id"), primary_key=True),
    comment="The parent's answers are the child's items.",
)

pause = Table(
    "pause",
    metadata,
    one_of(
        "kind",
        ("role", "service", "type", "emitter", "bot"),
        "The table that subject_id is of: role, service, event_type, emitter or bot.",
        primary_key=True,
    ),
    Column("subject_id", BigInteger, primary_key=True, autoincrement=False, comment="The id of the paused row."),
    required("reason", Text, otherwise="''"),
    required("paused_by", String(255), "The person who paused it.", otherwise="''"),
    required("since", Timestamp, server_default=func.now()),
    optional("until", Timestamp, "When it ends; null if a person must resume it."),
    comment="Something for which nothing new begins, until an operator resumes it. The row goes then.",
)

sending_limit = Table(
    "sending_limit",
    metadata,
    one_of(
        "kind",
        ("emitter", "emitter_profile"),
        "The table that subject_id is of: emitter or emitter_profile.",
        primary_key=True,
    ),
    Column("subject_id", BigInteger, primary_key=True, autoincrement=False, comment="The id of the limited row."),
    optional("items_per_second", Integer, "Items that the front takes; null for no limit, as below."),
    optional("bytes_per_second", Integer, "Bytes of items that the front takes."),
    optional("open_envelopes", Integer, "Envelopes that are begun and not ended."),
    optional("envelope_events", Integer, "Events of an envelope."),
    optional("calls_in_flight", Integer, "Calls that wait for their answers."),
    optional("bytes_in_flight", Integer, "Bytes of these calls."),
    comment="Limits of an emitter, or of all emitters of a profile. Those of an emitter come first.",
)

lag_limit = Table(
    "lag_limit",
    metadata,
    one_of("kind", ("role", "reader"), "What subject_id is of: role, or the service of a reader.", primary_key=True),
    Column("subject_id", BigInteger, primary_key=True, autoincrement=False, comment="The id of the limited row."),
    optional("envelopes", BigInteger, "The most envelopes that it may lack; null where an age is the limit."),
    optional("seconds", Float, "The age in seconds that the oldest of them may have; null where a number is."),
    one_of(
        "when_behind",
        ("alarm", "detach", "skip"),
        "What the bus does beyond the limit: it tells people, takes it off the bus, or has it do without.",
        server_default="alarm",
    ),
    comment="How far a consumer role or a reader may lag.",
)

input_descriptor = Table(
    "input_descriptor",
    metadata,
    Column("id", Counter, primary_key=True),
    required("name", String(255), unique=True),
    required("content", LargeBinary, "Usually XML, see docs/emitting.md."),
    Column("mimetype", String(255)),
    comment="Describes files, so that their records can be emitted as items.",
)

emission_profile = Table(
    "emission_profile",
    metadata,
    Column("id", Counter, primary_key=True),
    required("name", String(255), unique=True),
    optional("person_id", ForeignKey("person.id"), "Who may use it; null for nobody."),
    optional("descriptor_id", ForeignKey("input_descriptor.id"), "How the files that it emits are read."),
    required("encoding", String(64), "The character encoding of the files that it emits."),
    comment="A way in which a person emits files.",
)
