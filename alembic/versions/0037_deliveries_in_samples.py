"""Samples have deliveries by role.

They are a part more of a map that is there. So only the comment of its column is another.
"""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

BEFORE = (
    'A map. "traffic": lists of emitter id, event type id, events, items. "roles": lists of role id, lag, lag in '
    "seconds, parked; without roles that lacked nothing."
)
SINCE = BEFORE + ' "delivered": lists of role id, envelopes, items.'


def upgrade() -> None:
    _comment(SINCE)


def downgrade() -> None:
    _comment(BEFORE)


def _comment(text: str) -> None:
    """Write the comment; SQLite keeps none."""
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column(
            "sample", "parts", existing_type=sa.JSON(none_as_null=True), existing_nullable=False, comment=text
        )
