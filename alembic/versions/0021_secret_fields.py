"""Event types can have fields that are not shown.

The triggers of 0016 on this table watch all its columns, so they notice edits of this one, too.
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

COMMENT = "The fields of its items that people do not see: paths of keys with dots between them, each on a line."


def upgrade() -> None:
    op.add_column(
        "event_type", sa.Column("secret", sa.Text(), nullable=False, server_default=sa.text("''"), comment=COMMENT)
    )


def downgrade() -> None:
    op.drop_column("event_type", "secret")
