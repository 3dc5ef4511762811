"""The first tables, and the rows of those that always have exactly one."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# SQLite counts up by itself only where the primary key's type is exactly INTEGER.
IDENTIFIER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "configuration",
        sa.Column("id", sa.Integer(), nullable=False, comment="Always 1."),
        sa.Column(
            "version",
            IDENTIFIER,
            nullable=False,
            comment="Grows by one with every change to the tables of this file, so that a running broker notices.",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_configuration"),
        sa.CheckConstraint("id = 1", name=op.f("ck_configuration_one_row")),
        comment="One row: the version of the whole configuration.",
    )
    op.create_table(
        "emitter_profile",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("removed_at", MOMENT, comment="When it was taken out of use; null while in use."),
        sa.PrimaryKeyConstraint("id", name="pk_emitter_profile"),
        sa.UniqueConstraint("name", name="uq_emitter_profile_name"),
        comment="A set of event types that its emitters may send.",
    )
    op.create_table(
        "event_type",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column(
            "immediate_reply", sa.Boolean(), nullable=False, comment="Whether end_event waits for the consumer's reply."
        ),
        sa.Column("removed_at", MOMENT, comment="When it was taken out of use; null while in use."),
        sa.PrimaryKeyConstraint("id", name="pk_event_type"),
        sa.UniqueConstraint("name", name="uq_event_type_name"),
        comment="The name of a kind of data; all that the bus knows of what an event holds.",
    )
    op.create_table(
        "head",
        sa.Column("id", sa.Integer(), nullable=False, comment="Always 1."),
        sa.Column(
            "position",
            sa.BigInteger(),
            nullable=False,
            comment="The position of the envelope sealed last; 0 before the first.",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_head"),
        sa.CheckConstraint("id = 1", name=op.f("ck_head_one_row")),
        comment="One row: where the log ends. Updated in each sealing transaction, which makes positions gapless.",
    )
    op.create_table(
        "history",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column(
            "subject", sa.String(32), nullable=False, comment="What was moved: envelope, delivery, configuration."
        ),
        sa.Column(
            "subject_id", sa.String(255), nullable=False, comment="Its id or name; for a delivery, role and envelope."
        ),
        sa.Column("move", sa.String(32), nullable=False, comment="What became of it: cancelled, parked, applied, ..."),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_history"),
        comment="Moves that an operator may ask about later.",
    )
    op.create_index("ix_history_subject", "history", ["subject", "subject_id"])
    op.create_table(
        "service",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column(
            "kind",
            sa.String(16),
            nullable=False,
            comment="worker: answers items, one of its roles gets an event; consumer: ends the line, all its roles get it.",
        ),
        sa.Column("removed_at", MOMENT, comment="When it was taken out of use; null while in use."),
        sa.PrimaryKeyConstraint("id", name="pk_service"),
        sa.CheckConstraint("kind IN ('worker', 'consumer')", name=op.f("ck_service_kind")),
        sa.UniqueConstraint("name", name="uq_service_name"),
        comment="What a node of a graph asks for; its roles provide it.",
    )
    op.create_table(
        "writer",
        sa.Column(
            "name",
            sa.String(64),
            nullable=False,
            comment="Which part of the broker writes: front, back, or both as one.",
        ),
        sa.Column("epoch", IDENTIFIER, nullable=False, comment="Grows by one with each start of that part."),
        sa.Column(
            "group_number",
            sa.BigInteger(),
            nullable=False,
            comment="The number of the last group of calls that was committed: tells after a lost connection whether a COMMIT took place.",
        ),
        sa.PrimaryKeyConstraint("name", name="pk_writer"),
        comment="One row for each process that writes to the journal.",
    )
    op.create_table(
        "emitter",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("login", sa.String(255), nullable=False),
        sa.Column("password_hash", sa.String(255), comment="Argon2; null until a password is set: nobody can log in."),
        sa.Column("profile_id", IDENTIFIER, nullable=False),
        sa.Column("removed_at", MOMENT, comment="When it was taken out of use; null while in use."),
        sa.PrimaryKeyConstraint("id", name="pk_emitter"),
        sa.ForeignKeyConstraint(["profile_id"], ["emitter_profile.id"], name="fk_emitter_profile_id"),
        sa.UniqueConstraint("login", name="uq_emitter_login"),
        comment="A program that sends envelopes.",
    )
    op.create_table(
        "graph",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("event_type_id", IDENTIFIER, nullable=False),
        sa.Column(
            "number",
            sa.Integer(),
            nullable=False,
            comment="1 for the type's first version; the highest is the current one.",
        ),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_graph"),
        sa.ForeignKeyConstraint(["event_type_id"], ["event_type.id"], name="fk_graph_event_type_id"),
        sa.UniqueConstraint("event_type_id", "number", name="uq_graph_event_type_id_number"),
        comment="An immutable version of the way that events of a type take. A type without nodes has an empty version.",
    )
    op.create_table(
        "profile_event_type",
        sa.Column("profile_id", IDENTIFIER, nullable=False),
        sa.Column("event_type_id", IDENTIFIER, nullable=False),
        sa.PrimaryKeyConstraint("profile_id", "event_type_id", name="pk_profile_event_type"),
        sa.ForeignKeyConstraint(["event_type_id"], ["event_type.id"], name="fk_profile_event_type_event_type_id"),
        sa.ForeignKeyConstraint(
            ["profile_id"], ["emitter_profile.id"], name="fk_profile_event_type_profile_id", ondelete="CASCADE"
        ),
        comment="Which event types a profile allows.",
    )
    op.create_table(
        "role",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("login", sa.String(255), nullable=False),
        sa.Column("password_hash", sa.String(255), comment="Argon2; null until a password is set: nobody can log in."),
        sa.Column("service_id", IDENTIFIER, nullable=False),
        sa.Column("removed_at", MOMENT, comment="When it was taken out of use; null while in use."),
        sa.PrimaryKeyConstraint("id", name="pk_role"),
        sa.ForeignKeyConstraint(["service_id"], ["service.id"], name="fk_role_service_id"),
        sa.UniqueConstraint("login", name="uq_role_login"),
        comment="One program that provides a service.",
    )
    op.create_table(
        "cursor",
        sa.Column("role_id", IDENTIFIER, nullable=False),
        sa.Column(
            "from_position", sa.BigInteger(), nullable=False, comment="The first position that the role is owed."
        ),
        sa.Column(
            "until_position",
            sa.BigInteger(),
            comment="The first position that it is no longer owed; null for all to come.",
        ),
        sa.Column(
            "position",
            sa.BigInteger(),
            nullable=False,
            comment="All up to here is settled for the role: done, not owed, or in a delivery row of its own.",
        ),
        sa.Column(
            "done",
            sa.LargeBinary(),
            nullable=False,
            comment="What is settled above position: bit 0 of byte 0 stands for position + 1, bit 1 for position + 2, ...",
        ),
        sa.Column(
            "handed_to",
            sa.BigInteger(),
            nullable=False,
            comment="Nothing above this position was ever handed to the role. What a crash leaves unsettled below it may have been, and comes again on its own.",
        ),
        sa.PrimaryKeyConstraint("role_id", name="pk_cursor"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_cursor_role_id"),
        comment="Where a consumer role stands in the log.",
    )
    op.create_table(
        "envelope",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("emitter_id", IDENTIFIER, nullable=False),
        sa.Column(
            "state",
            sa.String(16),
            nullable=False,
            comment="xbus.states.EnvelopeState; received and cancelled are final.",
        ),
        sa.Column("opened_at", MOMENT, nullable=False),
        sa.Column("closed_at", MOMENT, comment="When it was sealed or cancelled; null while open."),
        sa.Column(
            "position",
            sa.BigInteger(),
            comment="Its place in the log: 1, 2, 3 and so on without a gap, in commit order; null unless received.",
        ),
        sa.Column("events", sa.Integer(), comment="How many events it holds; null unless received."),
        sa.Column("items", sa.BigInteger(), comment="How many items its events hold together; null unless received."),
        sa.Column(
            "bytes", sa.BigInteger(), comment="How many bytes its segments' data take together; null unless received."
        ),
        sa.Column(
            "hash",
            sa.LargeBinary(32),
            comment="SHA-256 over its events in order: type name, zero byte, item count as 8 bytes big endian, then the hashes of its segments in index order; null unless received.",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_envelope"),
        sa.CheckConstraint("state IN ('open', 'received', 'cancelled')", name=op.f("ck_envelope_state")),
        sa.ForeignKeyConstraint(["emitter_id"], ["emitter.id"], name="fk_envelope_emitter_id"),
        sa.UniqueConstraint("position", name="uq_envelope_position"),
        comment="What its emitter wants delivered all or nothing.",
    )
    op.create_index(
        "ix_envelope_open",
        "envelope",
        ["state"],
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_table(
        "node",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("graph_id", IDENTIFIER, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("service_id", IDENTIFIER, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_node"),
        sa.ForeignKeyConstraint(["graph_id"], ["graph.id"], name="fk_node_graph_id"),
        sa.ForeignKeyConstraint(["service_id"], ["service.id"], name="fk_node_service_id"),
        sa.UniqueConstraint("graph_id", "name", name="uq_node_graph_id_name"),
        comment="A place in a graph; one that no edge leads to is a start node and gets the items as emitted.",
    )
    op.create_index("ix_node_graph_id", "node", ["graph_id"])
    op.create_table(
        "registration",
        sa.Column("role_id", IDENTIFIER, nullable=False),
        sa.Column("token_hash", sa.LargeBinary(32), nullable=False, comment="The session it was made with."),
        sa.Column("uri", sa.Text(), nullable=False, comment="Where the recipient listens; the broker connects there."),
        sa.Column("registered_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("role_id", name="pk_registration"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_registration_role_id"),
        comment="The recipient that serves a role now; the newest wins.",
    )
    op.create_table(
        "session",
        sa.Column(
            "token_hash",
            sa.LargeBinary(32),
            nullable=False,
            comment="SHA-256 of the token; the token itself is not kept.",
        ),
        sa.Column("emitter_id", IDENTIFIER, comment="Whose session it is, at the front; else null."),
        sa.Column("role_id", IDENTIFIER, comment="Whose session it is, at the back; else null."),
        sa.Column("expires_at", MOMENT, nullable=False, comment="Moves on with use."),
        sa.PrimaryKeyConstraint("token_hash", name="pk_session"),
        sa.CheckConstraint("(emitter_id IS NULL) <> (role_id IS NULL)", name=op.f("ck_session_one_owner")),
        sa.ForeignKeyConstraint(["emitter_id"], ["emitter.id"], name="fk_session_emitter_id"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_session_role_id"),
        comment="A login that has not ended.",
    )
    op.create_table(
        "delivery",
        sa.Column("role_id", IDENTIFIER, nullable=False),
        sa.Column("envelope_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False, comment="The envelope's position."),
        sa.Column("state", sa.String(16), nullable=False, comment="xbus.states.DeliveryState."),
        sa.Column(
            "service_id",
            IDENTIFIER,
            comment="The worker service without which the envelope waits; null in other states.",
        ),
        sa.Column(
            "attempts",
            sa.Integer(),
            nullable=False,
            comment="How often it was handed over, counted before the hand-over.",
        ),
        sa.Column("code", sa.String(64), nullable=False, comment="Why it is here: the code of the last failure."),
        sa.Column("cause", sa.Text(), nullable=False, comment="Why it is here, in a sentence."),
        sa.Column("changed_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("role_id", "envelope_id", name="pk_delivery"),
        sa.CheckConstraint("state IN ('waiting', 'retry', 'parked')", name=op.f("ck_delivery_state")),
        sa.ForeignKeyConstraint(["envelope_id"], ["envelope.id"], name="fk_delivery_envelope_id"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_delivery_role_id"),
        sa.ForeignKeyConstraint(["service_id"], ["service.id"], name="fk_delivery_service_id"),
        comment="An envelope that a consumer role did not get in its turn. The row goes when the envelope is settled.",
    )
    op.create_index("ix_delivery_state", "delivery", ["state", "position"])
    op.create_table(
        "edge",
        sa.Column("parent_id", IDENTIFIER, nullable=False),
        sa.Column("child_id", IDENTIFIER, nullable=False),
        sa.PrimaryKeyConstraint("parent_id", "child_id", name="pk_edge"),
        sa.ForeignKeyConstraint(["child_id"], ["node.id"], name="fk_edge_child_id"),
        sa.ForeignKeyConstraint(["parent_id"], ["node.id"], name="fk_edge_parent_id"),
        comment="The parent's answers are the child's items.",
    )
    op.create_table(
        "event",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("envelope_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, comment="1 for the envelope's first event, and so on."),
        sa.Column("event_type_id", IDENTIFIER, nullable=False),
        sa.Column("graph_id", IDENTIFIER, nullable=False, comment="The type's current graph when it was started."),
        sa.Column(
            "estimate",
            sa.BigInteger(),
            nullable=False,
            comment="How many items its emitter expected to send; a hint only.",
        ),
        sa.Column("items", sa.BigInteger(), comment="How many items it holds; null until it is ended."),
        sa.PrimaryKeyConstraint("id", name="pk_event"),
        sa.ForeignKeyConstraint(["envelope_id"], ["envelope.id"], name="fk_event_envelope_id"),
        sa.ForeignKeyConstraint(["event_type_id"], ["event_type.id"], name="fk_event_event_type_id"),
        sa.ForeignKeyConstraint(["graph_id"], ["graph.id"], name="fk_event_graph_id"),
        sa.UniqueConstraint("envelope_id", "number", name="uq_event_envelope_id_number"),
        comment="Items of one type inside an envelope.",
    )
    op.create_table(
        "failure",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("envelope_id", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), comment="The event in which it happened; null at the end of the envelope."),
        sa.Column("role_id", IDENTIFIER, comment="The recipient that failed; null where none did."),
        sa.Column(
            "verb",
            sa.String(32),
            nullable=False,
            comment="What the broker asked of the recipient: send_item, end_event, ...",
        ),
        sa.Column("code", sa.String(64), nullable=False, comment="refused, timed_out, connection_lost, ..."),
        sa.Column("message", sa.Text(), nullable=False, comment="What the recipient said, or what the broker saw."),
        sa.Column("indices", sa.JSON(), comment="The items that the recipient named; null where it named none."),
        sa.PrimaryKeyConstraint("id", name="pk_failure"),
        sa.ForeignKeyConstraint(["envelope_id"], ["envelope.id"], name="fk_failure_envelope_id"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_failure_role_id"),
        comment="Every failed call to a recipient, kept for the person who repairs.",
    )
    op.create_index("ix_failure_envelope_id", "failure", ["envelope_id"])
    op.create_table(
        "segment",
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column(
            "first_index", sa.BigInteger(), nullable=False, comment="The index of its first item; an event starts at 0."
        ),
        sa.Column("items", sa.Integer(), nullable=False, comment="How many items it holds."),
        sa.Column(
            "data", sa.LargeBinary(), nullable=False, comment="The items, each as a msgpack bin, one after the other."
        ),
        sa.Column("hash", sa.LargeBinary(32), nullable=False, comment="SHA-256 of data."),
        sa.Column(
            "indices",
            sa.JSON(),
            comment="For each item the list of indices it was made of, where they are not simply first_index, first_index + 1 and so on; else null.",
        ),
        sa.PrimaryKeyConstraint("event_id", "first_index", name="pk_segment"),
        sa.ForeignKeyConstraint(["event_id"], ["event.id"], name="fk_segment_event_id"),
        comment="A run of consecutive items of one event, stored as it is forwarded.",
    )
    if op.get_bind().dialect.name == "postgresql":
        # A segment is hundreds of kilobytes and written once: trying to compress each costs more than it saves.
        op.execute("ALTER TABLE segment ALTER COLUMN data SET STORAGE EXTERNAL")
    op.bulk_insert(sa.table("configuration", sa.column("id"), sa.column("version")), [{"id": 1, "version": 1}])
    op.bulk_insert(sa.table("head", sa.column("id"), sa.column("position")), [{"id": 1, "position": 0}])
