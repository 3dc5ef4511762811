"""Retries, order, corrections and isolated items, idempotency keys, presence, and how much the segments take."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# SQLite counts up by itself only where the primary key's type is exactly INTEGER.
IDENTIFIER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)

DELIVERY_STATES = "state IN ('waiting', 'retry', 'held', 'parked')"


def upgrade() -> None:
    _configuration()
    _envelopes()
    _deliveries()
    _items()
    _presence()
    _decisions()


def _configuration() -> None:
    _add_checked(
        "event_type",
        "bad_items",
        "VARCHAR(16) DEFAULT 'envelope' NOT NULL",
        "bad_items IN ('envelope', 'isolate')",
        "What is parked where a recipient refuses items by their indices: the whole envelope, or those alone.",
    )
    op.add_column(
        "event_type",
        sa.Column(
            "max_isolated",
            sa.Integer(),
            nullable=False,
            server_default="100",
            comment="With more items than this refused in one event the whole envelope is parked all the same.",
        ),
    )
    _add_checked(
        "service",
        "failures",
        "VARCHAR(16) DEFAULT 'shared' NOT NULL",
        "failures IN ('shared', 'own')",
        "shared: a refusal by one of its consumers stops the envelope for all who lack it; own: it is nobody else's matter.",
    )
    for name, kind, comment in (
        ("attempts", sa.Integer(), "How often an envelope is tried before it is parked; null for [back]'s."),
        ("first_delay", sa.Float(), "Seconds before the second attempt, doubled each time; null for [back]'s."),
        ("longest_delay", sa.Float(), "The most that a delay grows to, in seconds; null for [back]'s."),
        (
            "jitter",
            sa.Float(),
            "By which part a delay is made longer or shorter at random, 0 to 1; null for [back]'s.",
        ),
    ):
        op.add_column("service", sa.Column(name, kind, comment=comment))
    op.add_column(
        "role",
        sa.Column(
            "ordered",
            sa.Boolean(),
            nullable=False,
            server_default=sa.false(),
            comment="Whether it gets one envelope at a time, those of one ordering key in position order.",
        ),
    )
    op.add_column(
        "role",
        sa.Column(
            "detached_at", MOMENT, comment="When an operator took it off the bus; null while it is owed envelopes."
        ),
    )


def _add_checked(table: str, column: str, definition: str, check: str, comment: str) -> None:
    """A column with a check, which SQLite takes only in the very statement that adds the column."""
    op.execute(f"ALTER TABLE {table} ADD COLUMN {column} {definition} CONSTRAINT ck_{table}_{column} CHECK ({check})")
    if op.get_context().dialect.name == "postgresql":
        op.alter_column(table, column, comment=comment)


def _envelopes() -> None:
    for column in (
        sa.Column(
            "ordering_key",
            sa.String(255),
            comment="Roles that want order get envelopes of one key one after the other, in position order; null for none, "
            "which is a key too.",
        ),
        sa.Column(
            "idempotency_key",
            sa.Text(),
            comment="What its emitter calls it, for good: its id was made of this and the emitter's. Null for none.",
        ),
        sa.Column(
            "content_hash",
            sa.LargeBinary(32),
            comment="What hash would be if each event were one segment: the same however it was cut, so that a repeat can "
            "be compared with it when they are gone; only of a received envelope with an idempotency key.",
        ),
        sa.Column(
            "pruned_at",
            MOMENT,
            comment="When its removal began, long after it was settled for all; null while all of it is here.",
        ),
    ):
        op.add_column("envelope", column)
    cancelled = sa.text("state = 'cancelled' AND pruned_at IS NULL")
    op.create_index(
        "ix_envelope_cancelled", "envelope", ["closed_at"], sqlite_where=cancelled, postgresql_where=cancelled
    )
    op.create_index("ix_reply_envelope_id", "reply", ["envelope_id"])
    op.add_column(
        "writer",
        sa.Column(
            "stored_bytes",
            sa.BigInteger(),
            nullable=False,
            server_default="0",
            comment="By how many bytes it made the segments' data grow, or shrink by removing some. The sum over all rows "
            "is what they take.",
        ),
    )
    # What is there already is accounted to whoever writes first.
    op.execute(
        "UPDATE writer SET stored_bytes = (SELECT coalesce(sum(length(data)), 0) FROM segment) "
        "WHERE name = (SELECT min(name) FROM writer)"
    )


def _deliveries() -> None:
    due_at = sa.Column("due_at", MOMENT, comment="When the next attempt may begin, in state retry; null for at once.")
    ordering_key = sa.Column(
        "ordering_key",
        sa.String(255),
        comment="The envelope's ordering key, empty for none, where the role wants order; null where it does not.",
    )
    if op.get_context().dialect.name == "postgresql":
        op.drop_constraint(op.f("ck_delivery_state"), "delivery", type_="check")
        op.create_check_constraint(op.f("ck_delivery_state"), "delivery", DELIVERY_STATES)
        op.add_column("delivery", due_at)
        op.add_column("delivery", ordering_key)
        _index_ordering_keys()
        return
    # SQLite changes no check of a table that is there; nothing refers to this one, so it can be made anew.
    op.rename_table("delivery", "old_delivery")
    op.drop_index("ix_delivery_role_id", "old_delivery")
    op.drop_index("ix_delivery_envelope_id", "old_delivery")
    op.create_table(
        "delivery",
        sa.Column("role_id", IDENTIFIER, nullable=False),
        sa.Column("envelope_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("service_id", IDENTIFIER),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("code", sa.String(64), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("changed_at", MOMENT, nullable=False),
        due_at,
        ordering_key,
        sa.PrimaryKeyConstraint("role_id", "envelope_id", name="pk_delivery"),
        sa.CheckConstraint(DELIVERY_STATES, name=op.f("ck_delivery_state")),
        sa.ForeignKeyConstraint(["envelope_id"], ["envelope.id"], name="fk_delivery_envelope_id"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_delivery_role_id"),
        sa.ForeignKeyConstraint(["service_id"], ["service.id"], name="fk_delivery_service_id"),
    )
    columns = "role_id, envelope_id, position, state, service_id, attempts, code, cause, changed_at"
    op.execute(f"INSERT INTO delivery ({columns}) SELECT {columns} FROM old_delivery")
    op.drop_table("old_delivery")
    op.create_index("ix_delivery_role_id", "delivery", ["role_id", "position"])
    op.create_index("ix_delivery_envelope_id", "delivery", ["envelope_id"])
    _index_ordering_keys()


def _index_ordering_keys() -> None:
    is_ordered = sa.text("ordering_key IS NOT NULL")
    columns = ["role_id", "ordering_key", "position"]
    op.create_index(
        "ix_delivery_ordering_key", "delivery", columns, sqlite_where=is_ordered, postgresql_where=is_ordered
    )


def _items() -> None:
    op.create_table(
        "correction",
        sa.Column("id", IDENTIFIER, nullable=False, comment="Of several of one item the highest counts."),
        sa.Column("role_id", IDENTIFIER, nullable=False, comment="The consumer role that gets the item so."),
        sa.Column("event_id", sa.Uuid(), nullable=False, comment="An event of the envelope that is parked."),
        sa.Column("item_index", sa.BigInteger(), nullable=False, comment="Which item of the event, from 0."),
        sa.Column("before", sa.LargeBinary(), nullable=False, comment="The item as its emitter sent it."),
        sa.Column("after", sa.LargeBinary(), nullable=False, comment="The item as it is handed over instead."),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_correction"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_correction_role_id"),
        sa.ForeignKeyConstraint(["event_id"], ["event.id"], name="fk_correction_event_id"),
        comment="Items that a person corrected after a recipient had refused them; what the emitter sent never changes.",
    )
    op.create_index("ix_correction_event_id", "correction", ["event_id", "role_id"])
    op.create_table(
        "parked_item",
        sa.Column("role_id", IDENTIFIER, nullable=False, comment="The consumer role that goes without it."),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("item_index", sa.BigInteger(), nullable=False, comment="Which item of the event, from 0."),
        sa.Column("envelope_id", sa.Uuid(), nullable=False),
        sa.Column(
            "state",
            sa.String(16),
            nullable=False,
            comment="xbus.states.ItemState. Whatever it is, the event goes to the role without the item.",
        ),
        sa.Column("code", sa.String(64), nullable=False, comment="Why it was parked: the code of the refusal."),
        sa.Column("cause", sa.Text(), nullable=False, comment="Why it was parked: what the recipient said."),
        sa.Column("changed_at", MOMENT, nullable=False),
        sa.Column("resumed_as", sa.Uuid(), comment="The envelope by which it was sent again; null in other states."),
        sa.PrimaryKeyConstraint("role_id", "event_id", "item_index", name="pk_parked_item"),
        sa.CheckConstraint("state IN ('parked', 'resumed', 'dropped')", name=op.f("ck_parked_item_state")),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_parked_item_role_id"),
        sa.ForeignKeyConstraint(["event_id"], ["event.id"], name="fk_parked_item_event_id"),
        sa.ForeignKeyConstraint(["envelope_id"], ["envelope.id"], name="fk_parked_item_envelope_id"),
        comment="Items that a recipient refused, of event types whose bad items are isolated: they are parked alone.",
    )
    op.create_index("ix_parked_item_envelope_id", "parked_item", ["envelope_id"])
    op.create_index("ix_parked_item_event_id", "parked_item", ["event_id"])
    op.create_index("ix_parked_item_state", "parked_item", ["state", "role_id"])


def _presence() -> None:
    op.create_table(
        "presence",
        sa.Column("role_id", IDENTIFIER, nullable=False),
        sa.Column("state", sa.String(16), nullable=False, comment="xbus.states.PresenceState."),
        sa.Column("since", MOMENT, nullable=False, comment="When it came into that state."),
        sa.Column(
            "seen_at", MOMENT, comment="When the broker last heard of its recipient; null before the first time."
        ),
        sa.Column(
            "work",
            sa.JSON(),
            comment="What it works on: a list of maps with envelope_id, position, verb, since, and what it tells of its "
            "progress; null where it has nothing to do.",
        ),
        sa.Column("noted_at", MOMENT, nullable=False, comment="When the broker wrote this row."),
        sa.PrimaryKeyConstraint("role_id", name="pk_presence"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_presence_role_id"),
        comment="What the broker knows of each role's recipient, written now and then for those who operate the bus.",
    )


def _decisions() -> None:
    op.create_table(
        "decision",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column(
            "move",
            sa.String(16),
            nullable=False,
            comment="What becomes of what is owed: dropped, rerouted; or that events of a type that led nowhere take its "
            "first graph.",
        ),
        sa.Column("at", MOMENT, nullable=False, comment="When it was decided."),
        sa.Column(
            "reason", sa.Text(), nullable=False, comment="What was decided, in a sentence: it goes to the history."
        ),
        sa.Column("role_id", IDENTIFIER, comment="The removed role that is owed it; null where a graph was edited."),
        sa.Column("to_role_id", IDENTIFIER, comment="The role that gets it instead, where it goes to another role."),
        sa.Column("graph_id", IDENTIFIER, comment="The new version of the edited graph; null for a role's."),
        sa.Column("position", sa.BigInteger(), nullable=False, comment="All envelopes up to here are dealt with."),
        sa.Column(
            "until_position",
            sa.BigInteger(),
            comment="The last position that it is about; null for as long as any may turn up.",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_decision"),
        sa.CheckConstraint("move IN ('dropped', 'rerouted', 'first_graph')", name=op.f("ck_decision_move")),
        sa.ForeignKeyConstraint(["graph_id"], ["graph.id"], name="fk_decision_graph_id"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_decision_role_id"),
        sa.ForeignKeyConstraint(["to_role_id"], ["role.id"], name="fk_decision_to_role_id"),
        comment="What an administrator decided about envelopes that are owed. The back carries it out; then the row goes.",
    )
