"""Readers that lag too far may be detached: retention waits for them no longer."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

KIND = "checkpoint, move, undo, split, merge or skip."
FORMER_KIND = "checkpoint, move, undo, split or merge."


def upgrade() -> None:
    since = "Since when retention does not wait for it, as it lags too far; or null."
    op.add_column("reader", sa.Column("detached_at", sa.DateTime(timezone=True), comment=since))
    _comment(KIND)


def _comment(kind: str) -> None:
    # SQLite has no comments.
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("reader_move", "kind", comment=kind)


def downgrade() -> None:
    limit = sa.table("lag_limit", sa.column("kind"))
    op.execute(sa.delete(limit).where(limit.c.kind == "reader"))
    _comment(FORMER_KIND)
    op.drop_column("reader", "detached_at")
