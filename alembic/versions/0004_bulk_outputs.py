"""What bulk workers make of whole events."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

IDENTIFIER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "bulk_attempt",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("node_id", IDENTIFIER, nullable=False, comment="The node of the event's graph that it is for."),
        sa.Column("role_id", IDENTIFIER, nullable=False, comment="The worker role that it was handed over to."),
        sa.Column("state", sa.String(16), nullable=False, comment="xbus.states.AttemptState."),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column(
            "lease_until", MOMENT, nullable=False, comment="Until then its worker must have given a sign of life."
        ),
        sa.Column(
            "progress",
            sa.Float(),
            nullable=False,
            server_default="0",
            comment="How far it is, from 0 to 1, as it said last.",
        ),
        sa.Column("ended_at", MOMENT, comment="When it came out of state building."),
        sa.Column("code", sa.String(64), comment="Why it came to nothing; null where it did not."),
        sa.Column("cause", sa.Text(), comment="Why it came to nothing, in a sentence; null where it did not."),
        sa.Column("items", sa.BigInteger(), comment="How many items its segments hold together; null unless ready."),
        sa.Column(
            "bytes", sa.BigInteger(), comment="How many bytes its segments' data take together; null unless ready."
        ),
        sa.Column(
            "hash",
            sa.LargeBinary(32),
            comment="SHA-256 over the hashes of its segments, in the order of part and number; null unless ready.",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_bulk_attempt"),
        sa.CheckConstraint("state IN ('building', 'ready', 'failed', 'abandoned')", name=op.f("ck_bulk_attempt_state")),
        sa.ForeignKeyConstraint(["event_id"], ["event.id"], name="fk_bulk_attempt_event_id"),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name="fk_bulk_attempt_node_id"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_bulk_attempt_role_id"),
        comment="An attempt of a bulk worker to make the output of a node for an event; what is ready serves every run.",
    )
    live = sa.text("state IN ('building', 'ready')")
    op.create_index(
        "ix_bulk_attempt_live",
        "bulk_attempt",
        ["event_id", "node_id"],
        unique=True,
        sqlite_where=live,
        postgresql_where=live,
    )
    op.create_index("ix_bulk_attempt_event_id", "bulk_attempt", ["event_id"])
    op.create_index("ix_bulk_attempt_state", "bulk_attempt", ["state"])
    op.create_table(
        "bulk_segment",
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column(
            "part", sa.Integer(), nullable=False, comment="Parts are written side by side, each in one transaction."
        ),
        sa.Column("number", sa.Integer(), nullable=False, comment="Its place in the part, from 0."),
        sa.Column("items", sa.Integer(), nullable=False, comment="How many items it holds."),
        sa.Column("hash", sa.LargeBinary(32), nullable=False, comment="SHA-256 of data."),
        sa.Column(
            "first_index",
            sa.BigInteger(),
            nullable=False,
            comment="The index of the item that its first item was made of, where sources is null; else 0.",
        ),
        sa.Column(
            "sources",
            sa.LargeBinary(),
            comment="For each item, as 8 bytes little endian, the index of the event's item that it was made of; -1 where "
            "it was made of several, or of none in particular. Null where they are first_index, first_index + 1 and so on.",
        ),
        sa.Column("data", sa.LargeBinary(), nullable=False, comment="As in segment: each item as a msgpack bin."),
        sa.PrimaryKeyConstraint("attempt_id", "part", "number", name="pk_bulk_segment"),
        sa.ForeignKeyConstraint(["attempt_id"], ["bulk_attempt.id"], name="fk_bulk_segment_attempt_id"),
        comment="A run of consecutive items of a bulk worker's output; it counts as soon as its attempt is ready.",
    )
    if op.get_bind().dialect.name == "postgresql":
        # As those of events: trying to compress them costs more than it saves.
        op.execute("ALTER TABLE bulk_segment ALTER COLUMN data SET STORAGE EXTERNAL")
