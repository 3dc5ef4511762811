"""A session remembers the run of a bot for which it began, so that it ends with it."""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

COMMENT = "SHA-256 of the ticket of the bot's run for which it began, and with which it ends; else null."


def upgrade() -> None:
    op.add_column("session", sa.Column("ticket_hash", sa.LargeBinary(32), comment=COMMENT))
    op.create_index("ix_session_ticket_hash", "session", ["ticket_hash"])


def downgrade() -> None:
    # An older bus would let such a session outlive its run.
    op.execute("DELETE FROM session WHERE ticket_hash IS NOT NULL")
    op.drop_index("ix_session_ticket_hash", "session")
    op.drop_column("session", "ticket_hash")
