"""Tables of the audit: who did what to the bus, in a chain of hashes that shows whether a row was changed."""

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, LargeBinary, String, Table, Text

from xbus.model.base import Counter, Timestamp, metadata, partial_index, required

audit = Table(
    "audit",
    metadata,
    Column("id", Counter, primary_key=True),
    required("at", Timestamp, comment="When it was done."),
    required(
        "who",
        String(255),
        comment="A login, the operating-system user of a command, or the database user of an edit by SQL.",
    ),
    required("origin", String(255), comment="The address of the peer, or the host of the command; or empty."),
    required("action", String(64), comment="What was done, in a word: applied, password_set, dropped, ..."),
    required("object", Text, comment="To what, by its kind and its name or id."),
    required("before", Text, comment="How it was, as far as that changed; never a secret."),
    required("after", Text, comment="How it is since then; never a secret."),
    required("reason", Text, comment="Why, as the person said."),
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
    required("number", BigInteger, comment="The number of the newest row in the chain; 0 before the first."),
    required("hash", LargeBinary(32), comment="Its hash; zeros before the first."),
    required("cut_number", BigInteger, comment="All rows up to this number were cut off; 0 for none."),
    required("cut_hash", LargeBinary(32), comment="The hash from which the oldest kept row goes on."),
    comment="One row: both ends of the audit's chain. Who makes the chain longer or shorter locks it.",
)
