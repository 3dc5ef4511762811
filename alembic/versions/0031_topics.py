"""Programs make event types by sending to them, and API tokens for others, as far as their profile allows."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

NEW_TYPES = (
    "The beginning of the names, and a star, of the event types that its emitters may make by sending the first event "
    "of them; empty for none."
)
CLIENTS = "The profile of those emitters for which its own may make API tokens; null if they may not."
PUBLISHER = (
    "The emitter that sent the first event of a type that a program made. Its profile need not allow the type; null "
    "where only profiles allow it."
)
TOPIC = "Whether a program made it, by sending to it or by subscribing: one emitter alone publishes it."


def upgrade() -> None:
    # The ids have no foreign keys: SQLite would need new tables for them, and rows of these tables are never deleted.
    new_types = sa.Column("new_types", sa.String(255), nullable=False, server_default=sa.text("''"), comment=NEW_TYPES)
    op.add_column("emitter_profile", new_types)
    op.add_column("emitter_profile", sa.Column("clients_id", sa.BigInteger(), comment=CLIENTS))
    op.add_column("event_type", sa.Column("publisher_id", sa.BigInteger(), comment=PUBLISHER))
    is_topic = sa.Column("is_topic", sa.Boolean(), nullable=False, server_default=sa.false(), comment=TOPIC)
    op.add_column("event_type", is_topic)


def downgrade() -> None:
    for table, column in (
        ("event_type", "is_topic"),
        ("event_type", "publisher_id"),
        ("emitter_profile", "clients_id"),
        ("emitter_profile", "new_types"),
    ):
        op.drop_column(table, column)
