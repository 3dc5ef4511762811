"""How far each consumer role has come, and what did not go the normal way.

In normal running only ``cursor`` is written: a role is a reader of the log. An envelope that a role could not get in
its turn gets a row in ``delivery``, and the cursor passes it.
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
    String,
    Table,
    Text,
    Uuid,
)

from xbus.model.base import Counter, Timestamp, metadata

cursor = Table(
    "cursor",
    metadata,
    Column("role_id", ForeignKey("role.id"), primary_key=True),
    Column("from_position", BigInteger, nullable=False, comment="The first position that the role is owed."),
    Column("until_position", BigInteger, comment="The first position that it is no longer owed; null for all to come."),
    Column(
        "position",
        BigInteger,
        nullable=False,
        comment="All up to here is settled for the role: done, not owed, or in a delivery row of its own.",
    ),
    Column(
        "done",
        LargeBinary,
        nullable=False,
        comment="What is settled above position: bit 0 of byte 0 stands for position + 1, bit 1 for position + 2, ...",
    ),
    Column(
        "handed_to",
        BigInteger,
        nullable=False,
        comment="Nothing above this position was ever handed to the role. What a crash leaves unsettled below it may "
        "have been, and comes again on its own.",
    ),
    comment="Where a consumer role stands in the log.",
)

delivery = Table(
    "delivery",
    metadata,
    Column("role_id", ForeignKey("role.id"), primary_key=True),
    Column("envelope_id", ForeignKey("envelope.id"), primary_key=True),
    Column("position", BigInteger, nullable=False, comment="The envelope's position."),
    Column(
        "state",
        String(16),
        CheckConstraint("state IN ('waiting', 'retry', 'parked')", name="state"),
        nullable=False,
        comment="xbus.states.DeliveryState.",
    ),
    Column(
        "service_id",
        ForeignKey("service.id"),
        comment="The worker service without which the envelope waits; null in other states.",
    ),
    Column("attempts", Integer, nullable=False, comment="How often it was handed over, counted before the hand-over."),
    Column("code", String(64), nullable=False, comment="Why it is here: the code of the last failure."),
    Column("cause", Text, nullable=False, comment="Why it is here, in a sentence."),
    Column("changed_at", Timestamp, nullable=False),
    Index("ix_delivery_role_id", "role_id", "position"),
    Index("ix_delivery_envelope_id", "envelope_id"),
    comment="An envelope that a consumer role did not get in its turn. The row goes when the envelope is settled.",
)

failure = Table(
    "failure",
    metadata,
    Column("id", Counter, primary_key=True),
    Column("at", Timestamp, nullable=False),
    Column("envelope_id", ForeignKey("envelope.id"), nullable=False, index=True),
    Column("event_id", Uuid, comment="The event in which it happened; null at the end of the envelope."),
    Column("role_id", ForeignKey("role.id"), comment="The recipient that failed; null where none did."),
    Column("node", String(255), comment="The node at which it did; null at the end of the envelope."),
    Column(
        "verb", String(32), nullable=False, comment="What the broker asked of the recipient: send_item, end_event, ..."
    ),
    Column("code", String(64), nullable=False, comment="refused, timed_out, connection_lost, ..."),
    Column("message", Text, nullable=False, comment="What the recipient said, or what the broker saw."),
    Column("indices", JSON(none_as_null=True), comment="The items that the recipient named; null where it named none."),
    Column(
        "tracking",
        String(16),
        nullable=False,
        server_default="unprocessed",
        index=True,
        comment="xbus.states.TrackingState: how far the person who repairs has come.",
    ),
    comment="Every failed call to a recipient, kept for the person who repairs.",
)

history = Table(
    "history",
    metadata,
    Column("id", Counter, primary_key=True),
    Column("at", Timestamp, nullable=False),
    Column("subject", String(32), nullable=False, comment="What was moved: envelope, delivery, configuration."),
    Column("subject_id", String(255), nullable=False, comment="Its id or name; for a delivery, role and envelope."),
    Column("move", String(32), nullable=False, comment="What became of it: cancelled, parked, applied, ..."),
    Column("reason", Text, nullable=False),
    Index("ix_history_subject", "subject", "subject_id"),
    comment="Moves that an operator may ask about later.",
)
