"""A correction may be for all who lack the item, and is then for no role in particular."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

IDENTIFIER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
COLUMNS = "id, role_id, event_id, item_index, before, after, at, reason"


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.alter_column(
            "correction",
            "role_id",
            nullable=True,
            comment="The consumer role that gets the item so; null for all that lack it and all that come.",
        )
        op.alter_column(
            "correction",
            "event_id",
            comment="For one role, an event of the envelope that is parked; for all, the event whose segments hold the "
            "item, so that all envelopes over these segments carry the correction.",
        )
    else:
        _make_anew()
    is_for_all = sa.text("role_id IS NULL")
    op.create_index("ix_correction_for_all", "correction", ["id"], sqlite_where=is_for_all, postgresql_where=is_for_all)


def _make_anew() -> None:
    """SQLite changes no column of a table that is there; nothing refers to this one, so it can be made anew."""
    op.rename_table("correction", "old_correction")
    op.drop_index("ix_correction_event_id", "old_correction")
    op.create_table(
        "correction",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("role_id", IDENTIFIER),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("item_index", sa.BigInteger(), nullable=False),
        sa.Column("before", sa.LargeBinary(), nullable=False),
        sa.Column("after", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_correction"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_correction_role_id"),
        sa.ForeignKeyConstraint(["event_id"], ["event.id"], name="fk_correction_event_id"),
        sqlite_autoincrement=True,
    )
    op.execute(f"INSERT INTO correction ({COLUMNS}) SELECT {COLUMNS} FROM old_correction")
    op.drop_table("old_correction")
    op.create_index("ix_correction_event_id", "correction", ["event_id", "role_id"])
