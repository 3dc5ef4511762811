"""Roles, services, event types and emitters can be paused."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "pause",
        sa.Column(
            "kind",
            sa.String(16),
            nullable=False,
            comment="The table that subject_id is of: role, service, event_type or emitter.",
        ),
        sa.Column(
            "subject_id", sa.BigInteger(), autoincrement=False, nullable=False, comment="The id of the paused row."
        ),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("paused_by", sa.String(255), nullable=False, comment="The person who paused it."),
        sa.Column("since", MOMENT, nullable=False),
        sa.Column("until", MOMENT, comment="When it ends by itself; null for when somebody resumes it."),
        sa.PrimaryKeyConstraint("kind", "subject_id", name="pk_pause"),
        sa.CheckConstraint("kind IN ('role', 'service', 'type', 'emitter')", name=op.f("ck_pause_kind")),
        comment="A role, service, event type or emitter for which nothing new begins. The row goes when it is resumed.",
    )


def downgrade() -> None:
    op.drop_table("pause")
