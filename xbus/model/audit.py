"""Tables of the audit: who did what to the bus, in a chain of hashes that shows whether a row was changed."""

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, LargeBinary, String, Table, Text

from xbus.model.base import Counter, Timestamp, metadata, optional, partial_index, required

audit = Table(
    "audit",
    metadata,
    Column("id", Counter, primary_key=True),
    required("at", Timestamp, "When it was done."),
    required(
        "who", String(255), "A login, the operating-system user of a command, or the database user of an edit by SQL."
    ),
    required("origin", String(255), "The address of the peer, or the host of the command; or empty."),
    required("action", String(64), "What was done, in a word: applied, password_set, dropped, ..."),
    required("object", Text, "To what, by its kind and its name or id."),
    required("before", Text, "How it was, as far as that changed; never a secret."),
    required("after", Text, "How it is since then; never a secret."),
    required("reason", Text, "Why, as the person said."),
    optional(
        "number",
        BigInteger,
        "Its place in the chain, gapless from 1; null until the chain takes it, a moment later.",
        unique=True,
    ),
    optional("hash", LargeBinary(32), "SHA-256 over the hash before it and its own values; null as the number."),
    # The broker looks every few seconds; it must never read all rows for that.
    partial_index("ix_audit_new", "id", where="number IS NULL"),
    comment="What people and programs did to the bus. Triggers refuse changes; only xbus audit cut removes rows.",
)

audit_head = Table(
    "audit_head",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True, comment="Always 1."),
    required("number", BigInteger, "The number of the newest row in the chain; 0 before the first."),
    required("hash", LargeBinary(32), "Its hash; zeros before the first."),
    required("cut_number", BigInteger, "All rows up to this number were cut off; 0 for none."),
    required("cut_hash", LargeBinary(32), "The hash from which the oldest kept row goes on."),
    comment="One row: both ends of the audit's chain. Who makes the chain longer or shorter locks it.",
)
