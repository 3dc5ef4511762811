"""Tables of delivery: how far each consumer role has come, and which deliveries left the normal way.

In normal running only ``cursor`` is written: a role is a reader of the log. An envelope that a role could not get in
its turn gets a row in ``delivery``, and the cursor passes it.
"""

from sqlalchemy import JSON, BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, String, Table, Text, Uuid

from xbus.model.base import Counter, Timestamp, metadata, one_of, optional, partial_index, required

cursor = Table(
    "cursor",
    metadata,
    Column("role_id", ForeignKey("role.id"), primary_key=True),
    required("from_position", BigInteger, "The first position that the role is owed."),
    optional("until_position", BigInteger, "The first position that it is no longer owed; null for all to come."),
    required(
        "position",
        BigInteger,
        "All up to here is settled for the role: done, not owed, or in a delivery row of its own.",
    ),
    required(
        "done",
        LargeBinary,
        "What is settled above position: bit 0 of byte 0 stands for position + 1, bit 1 for position + 2, ...",
    ),
    required(
        "handed_to",
        BigInteger,
        "Nothing above this position was ever handed to the role. Unsettled envelopes below it may have "
        "been: after a crash each is delivered again alone.",
    ),
    comment="Where a consumer role stands in the log.",
)

delivery = Table(
    "delivery",
    metadata,
    Column("role_id", ForeignKey("role.id"), primary_key=True),
    Column("envelope_id", ForeignKey("envelope.id"), primary_key=True),
    required("position", BigInteger, "The envelope's position."),
    one_of("state", ("waiting", "retry", "held", "parked"), "xbus.states.DeliveryState."),
    optional(
        "service_id",
        ForeignKey("service.id"),
        "The worker service without which the envelope waits; null in other states.",
    ),
    required("attempts", Integer, "How often it was handed over, counted before the hand-over."),
    required("code", String(64), "Why it is here: the code of the last failure."),
    required("cause", Text, "Why it is here, in a sentence."),
    required("changed_at", Timestamp),
    optional("due_at", Timestamp, "When the next attempt may begin, in state retry; null for at once."),
    optional(
        "ordering_key",
        String(255),
        "The envelope's ordering key, empty for none, where the role wants order; null where it does not.",
    ),
    Index("ix_delivery_role_id", "role_id", "position"),
    # The rows of one key in their order; those of roles that want none are not in it.
    partial_index("ix_delivery_ordering_key", "role_id", "ordering_key", "position", where="ordering_key IS NOT NULL"),
    Index("ix_delivery_envelope_id", "envelope_id"),
    # By these two health finds the oldest of what does not get on. One index of all states would mislead SQLite: it
    # would take that for the search of a single position, and read all rows of a state.
    partial_index("ix_delivery_parked", "role_id", "changed_at", where="state = 'parked'"),
    partial_index("ix_delivery_service_id", "service_id", "changed_at", where="service_id IS NOT NULL"),
    comment="An envelope that a consumer role did not get in its turn. The row goes when the envelope is settled.",
)

correction = Table(
    "correction",
    metadata,
    Column("id", Counter, primary_key=True, comment="Of several of one item the highest counts."),
    optional(
        "role_id",
        ForeignKey("role.id"),
        "The consumer role that gets the item so; null for all that lack it and all that come.",
    ),
    required(
        "event_id",
        ForeignKey("event.id"),
        "For one role, an event of the envelope that is parked; for all, the event whose segments hold the "
        "item, so that all envelopes over these segments carry the correction.",
    ),
    required("item_index", BigInteger, "Which item of the event, from 0."),
    required("before", LargeBinary, "The item as its emitter sent it."),
    required("after", LargeBinary, "The item as it is handed over instead."),
    required("at", Timestamp),
    required("reason", Text),
    Index("ix_correction_event_id", "event_id", "role_id"),
    # The newest correction for all is looked for whenever the end of the log is.
    partial_index("ix_correction_for_all", "id", where="role_id IS NULL"),
    # Nobody may reuse a removed id: the broker recognises new rows by it.
    sqlite_autoincrement=True,
    comment="Items that a person corrected after a recipient had refused them; what the emitter sent never changes.",
)

parked_item = Table(
    "parked_item",
    metadata,
    Column("role_id", ForeignKey("role.id"), primary_key=True, comment="The consumer role that goes without it."),
    Column("event_id", ForeignKey("event.id"), primary_key=True, index=True),
    Column("item_index", BigInteger, primary_key=True, comment="Which item of the event, from 0."),
    required("envelope_id", ForeignKey("envelope.id"), index=True),
    one_of(
        "state",
        ("parked", "resumed", "dropped"),
        "xbus.states.ItemState. Whatever it is, the event goes to the role without the item.",
    ),
    required("code", String(64), "Why it was parked: the code of the refusal."),
    required("cause", Text, "Why it was parked: what the recipient said."),
    required("changed_at", Timestamp),
    optional("resumed_as", Uuid, "The envelope by which it was sent again; null in other states."),
    Index("ix_parked_item_state", "state", "role_id", "changed_at"),
    comment="Items that a recipient refused, of event types whose bad items are isolated: they are parked alone.",
)

presence = Table(
    "presence",
    metadata,
    Column("role_id", ForeignKey("role.id"), primary_key=True),
    required("state", String(16), "xbus.states.PresenceState."),
    required("since", Timestamp, "When it came into that state."),
    optional("seen_at", Timestamp, "When the broker last heard of its recipient; null before the first time."),
    optional(
        "work",
        JSON(none_as_null=True),
        "What it works on: a list of maps with envelope_id, position, verb, since, and what it tells of its "
        "progress; null where it has nothing to do.",
    ),
    optional(
        "instances",
        JSON(none_as_null=True),
        "Each program that is registered: a list of maps with uri, state, since, seen_at and work; null where "
        "the role has place for one alone.",
    ),
    required("noted_at", Timestamp, "When the broker wrote this row."),
    comment="What the broker knows of each role's recipient, written now and then for those who operate the bus.",
)

decision = Table(
    "decision",
    metadata,
    Column("id", Counter, primary_key=True),
    one_of(
        "move",
        ("dropped", "rerouted", "first_graph"),
        "What becomes of what is owed: dropped, rerouted; or that events of a type that led nowhere take its "
        "first graph.",
    ),
    required("at", Timestamp, "When it was decided."),
    required("reason", Text, "What was decided, in a sentence: it goes to the history."),
    optional("role_id", ForeignKey("role.id"), "The removed role that is owed it; null where a graph was edited."),
    optional("to_role_id", ForeignKey("role.id"), "The role that gets it instead, where it goes to another role."),
    optional("graph_id", ForeignKey("graph.id"), "The new version of the edited graph; null for a role's."),
    required("position", BigInteger, "All envelopes up to here are dealt with."),
    optional("until_position", BigInteger, "The last position that it is about; null for as long as any may turn up."),
    comment="What an administrator decided about envelopes that are owed. The back carries it out; then the row goes.",
)

failure = Table(
    "failure",
    metadata,
    Column("id", Counter, primary_key=True),
    required("at", Timestamp),
    required("envelope_id", ForeignKey("envelope.id"), index=True),
    optional("event_id", Uuid, "The event in which it happened; null at the end of the envelope."),
    optional("role_id", ForeignKey("role.id"), "The recipient that failed; null where none did."),
    optional("node", String(255), "The node at which it did; null at the end of the envelope."),
    required("verb", String(32), "What the broker asked of the recipient: send_item, end_event, ..."),
    required("code", String(64), "refused, timed_out, connection_lost, ..."),
    required("message", Text, "What the recipient said, or what the broker saw."),
    optional("indices", JSON(none_as_null=True), "The items that the recipient named; null where it named none."),
    required(
        "tracking",
        String(16),
        "xbus.states.TrackingState: how far the person who repairs has come.",
        server_default="unprocessed",
        index=True,
    ),
    required(
        "fingerprint",
        String(16),
        "The same for failures of one trouble: of role, code, and the first line without what varies.",
        default="",
        otherwise="''",
    ),
    optional("owner", String(255), "The name of the person who looks after it; null for nobody."),
    # By these the list of groups hops from group to group, counts by state, and finds owners, without a message.
    Index("ix_failure_fingerprint", "fingerprint", "id"),
    Index("ix_failure_group_tracking", "fingerprint", "tracking"),
    partial_index("ix_failure_owner", "fingerprint", "owner", where="owner IS NOT NULL"),
    comment="Every failed call to a recipient, kept for the person who repairs.",
)

history = Table(
    "history",
    metadata,
    Column("id", Counter, primary_key=True),
    required("at", Timestamp),
    required("subject", String(32), "What was moved: envelope, delivery, configuration."),
    required("subject_id", String(255), "Its id or name; for a delivery, role and envelope."),
    required("move", String(32), "What became of it: cancelled, parked, applied, ..."),
    required("reason", Text),
    optional("who", String(255), "The person who did it; null where the broker did, or nobody noted it."),
    Index("ix_history_subject", "subject", "subject_id"),
    comment="Moves that an operator may ask about later.",
)
