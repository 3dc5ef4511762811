"""Items of settled envelopes may be kept in files outside the journal."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

IDENTIFIER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "archive_run",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("lease_until", MOMENT, nullable=False, comment="Until then it must have given a sign of life."),
        sa.Column("ended_at", MOMENT, comment="When it ended, or another took its place; null while it goes on."),
        sa.PrimaryKeyConstraint("id", name="pk_archive_run"),
        comment="A command that archives or restores; one goes on at a time.",
    )
    is_open = sa.text("ended_at IS NULL")
    op.create_index("ix_archive_run_open", "archive_run", ["ended_at"], sqlite_where=is_open, postgresql_where=is_open)
    op.create_table(
        "archive_file",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False, comment="Which run writes it, or wrote it."),
        sa.Column("event_type_id", IDENTIFIER, nullable=False, comment="All its events are of this type."),
        sa.Column("location", sa.Text(), nullable=False, comment="Its whole address, a path or a URI."),
        sa.Column(
            "state",
            sa.String(16),
            nullable=False,
            comment="writing: whatever is there does not count, and is removed if its run dies; kept: checked, for good.",
        ),
        sa.Column(
            "first_position", sa.BigInteger(), nullable=False, comment="The lowest position of an envelope in it."
        ),
        sa.Column(
            "last_position", sa.BigInteger(), nullable=False, comment="The highest position of an envelope in it."
        ),
        sa.Column("items", sa.BigInteger(), nullable=False, comment="How many rows it has, one for each item."),
        sa.Column("bytes", sa.BigInteger(), comment="How large it is; null while it is written."),
        sa.PrimaryKeyConstraint("id", name="pk_archive_file"),
        sa.CheckConstraint("state IN ('writing', 'kept')", name=op.f("ck_archive_file_state")),
        sa.ForeignKeyConstraint(["run_id"], ["archive_run.id"], name="fk_archive_file_run_id"),
        sa.ForeignKeyConstraint(["event_type_id"], ["event_type.id"], name="fk_archive_file_event_type_id"),
        comment="A Parquet file of items of one event type and one day.",
    )
    op.create_index("ix_archive_file_event_type_id_last_position", "archive_file", ["event_type_id", "last_position"])
    op.create_index("ix_archive_file_state", "archive_file", ["state"])
    op.create_table(
        "archived_envelope",
        sa.Column("envelope_id", sa.Uuid(), nullable=False),
        sa.Column("archived_at", MOMENT, nullable=False, comment="From when on its files are what counts."),
        sa.Column(
            "removed_at", MOMENT, comment="When the last of its segments was removed; null before that, or restored."
        ),
        sa.Column(
            "restored_at", MOMENT, comment="Since when its segments are all there again; null where they are not."
        ),
        sa.PrimaryKeyConstraint("envelope_id", name="pk_archived_envelope"),
        sa.ForeignKeyConstraint(["envelope_id"], ["envelope.id"], name="fk_archived_envelope_envelope_id"),
        comment="A received envelope whose items are in files. Its other rows stay.",
    )
    is_due = sa.text("removed_at IS NULL")
    op.create_index(
        "ix_archived_envelope_due",
        "archived_envelope",
        ["archived_at"],
        sqlite_where=is_due,
        postgresql_where=is_due,
    )
    op.create_table(
        "archived_event",
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("file_id", sa.Uuid(), nullable=False, comment="Where all its items are."),
        sa.Column("segments", sa.Integer(), nullable=False, comment="How many segments they make."),
        sa.Column(
            "hash",
            sa.LargeBinary(32),
            nullable=False,
            comment="SHA-256 over the hashes of its segments in index order.",
        ),
        sa.PrimaryKeyConstraint("event_id", name="pk_archived_event"),
        sa.ForeignKeyConstraint(["event_id"], ["event.id"], name="fk_archived_event_event_id"),
        sa.ForeignKeyConstraint(["file_id"], ["archive_file.id"], name="fk_archived_event_file_id"),
        comment="An event whose items are in a file; an event without items is in none.",
    )
    op.create_index("ix_archived_event_file_id", "archived_event", ["file_id"])
