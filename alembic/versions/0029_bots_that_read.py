"""Runs of bots are for batches, too: one run for each batch of a bot that reads."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "bot_run",
        sa.Column("batch", sa.String(255), comment="The batch for which it is: its range and its bounds."),
    )
    op.create_index("ix_bot_run_batch", "bot_run", ["bot_id", "batch"], unique=True)


def downgrade() -> None:
    op.drop_index("ix_bot_run_batch", "bot_run")
    op.drop_column("bot_run", "batch")
