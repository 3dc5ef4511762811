"""Failures have a fingerprint, by which those of one trouble are a group, and an owner; the history has persons."""

import sqlalchemy as sa
from alembic import op

from xbus.broker.journal.writes.fingerprint import fingerprint

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

PAGE = 1000
"""Failures that are in memory at once; a message may be long."""

INDEX = "ix_failure_fingerprint"


def upgrade() -> None:
    op.add_column(
        "failure",
        sa.Column(
            "fingerprint",
            sa.String(16),
            nullable=False,
            server_default=sa.text("''"),
            comment="The same for failures of one trouble: of role, verb, code, and the message without what varies.",
        ),
    )
    op.add_column(
        "failure",
        sa.Column("owner", sa.String(255), comment="The name of the person who looks after it; null for nobody."),
    )
    op.add_column(
        "history",
        sa.Column(
            "who", sa.String(255), comment="The person who did it; null where the broker did, or nobody noted it."
        ),
    )
    _fill()
    op.create_index(INDEX, "failure", ["fingerprint", "id", "role_id", "code", "tracking", "owner"])


def _fill() -> None:
    """Compute the fingerprints of all failures by the function that the broker uses: old and new ones are a group."""
    failure = sa.table("failure", *map(sa.column, ("id", "role_id", "verb", "code", "message", "fingerprint")))
    row = failure.c
    page = (
        sa.select(row.id, row.role_id, row.verb, row.code, row.message)
        .where(row.id > sa.bindparam("after"))
        .order_by(row.id)
        .limit(PAGE)
    )
    fill = sa.update(failure).where(row.id == sa.bindparam("of_id")).values(fingerprint=sa.bindparam("computed"))
    connection = op.get_bind()
    after = 0
    while found := connection.execute(page, {"after": after}).all():
        connection.execute(fill, [{"of_id": key, "computed": fingerprint(*of)} for key, *of in found])
        after = found[-1].id


def downgrade() -> None:
    op.drop_index(INDEX, "failure")
    op.drop_column("failure", "owner")
    op.drop_column("failure", "fingerprint")
    op.drop_column("history", "who")
