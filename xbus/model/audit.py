"""Tables of the audit: who did what to the bus, in a chain of hashes that shows whether a row was changed."""

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, LargeBinary, String, Table, Text

from xbus.model.base import Counter, Timestamp, metadata, partial_index

audit = Table(
    "audit",
    metadata,
    Column("id", Counter, primary_key=True),
    Column("at", Timestamp, nullable=False, comment="When it was done."),
    Column(
        "who",
        String(255),
        nullable=False,
        comment="A login, the operating-system user of a command, or the database user of an edit by SQL.",
    ),
    Column(
        "origin", String(255), nullable=False, comment="The address of the peer, or the host of the command; or empty."
    ),
    Column(
        "action", String(64), nullable=False, comment="What was done, in a word: applied, password_set, dropped, ..."
    ),
    Column("object", Text, nullable=False, comment="To what, by its kind and its name or id."),
    Column("before", Text, nullable=False, comment="How it was, as far as that changed; never a secret."),
    Column("after", Text, nullable=False, comment="How it is since then; never a secret."),
    Column("reason", Text, nullable=False, comment="Why, as the person said."),
    Column(
        "number",
        BigInteger,
        unique=True,
        comment="Its place in the chain, gapless from 1; null until the chain takes it, a moment later.",
    ),
    Column("hash", LargeBinary(32), comment="SHA-256 over the hash before it and its own values; null as the number."),
    # The broker looks every few seconds; it must never read all rows for that.
    partial_index("ix_audit_new", "id", where="number IS NULL"),
    comment="What people and programs did to the bus. Triggers refuse changes; only xbus audit cut removes rows.",
)

audit_head = Table(
    "audit_head",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True, comment="Always 1."),
    Column(
        "number", BigInteger, nullable=False, comment="The number of the newest row in the chain; 0 before the first."
    ),
    Column("hash", LargeBinary(32), nullable=False, comment="Its hash; zeros before the first."),
    Column("cut_number", BigInteger, nullable=False, comment="All rows up to this number were cut off; 0 for none."),
    Column("cut_hash", LargeBinary(32), nullable=False, comment="The hash from which the oldest kept row goes on."),
    comment="One row: both ends of the audit's chain. Who makes the chain longer or shorter locks it.",
)
