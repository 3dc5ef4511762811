"""Emitters and profiles can have limits."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

TABLE = "sending_limit"

LIMITS = {
    "items_per_second": "Items that the front takes; null for no limit, as below.",
    "bytes_per_second": "Bytes of items that the front takes.",
    "open_envelopes": "Envelopes that are begun and not ended.",
    "envelope_events": "Events of an envelope.",
    "calls_in_flight": "Calls that wait for their answers.",
    "bytes_in_flight": "Bytes of these calls.",
}


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column(
            "kind",
            sa.String(16),
            nullable=False,
            comment="The table that subject_id is of: emitter or emitter_profile.",
        ),
        sa.Column(
            "subject_id", sa.BigInteger(), autoincrement=False, nullable=False, comment="The id of the limited row."
        ),
        *(sa.Column(name, sa.Integer(), comment=comment) for name, comment in LIMITS.items()),
        sa.PrimaryKeyConstraint("kind", "subject_id", name="pk_sending_limit"),
        sa.CheckConstraint("kind IN ('emitter', 'emitter_profile')", name=op.f("ck_sending_limit_kind")),
        comment="Limits of an emitter, or of all emitters of a profile. Those of an emitter come first.",
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            f"CREATE TRIGGER edited_{TABLE} AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {TABLE} "
            "FOR EACH STATEMENT EXECUTE FUNCTION xbus_configuration_edited()"
        )
        return
    for event in ("INSERT", "UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER edited_{TABLE}_{event.lower()} AFTER {event} ON {TABLE} "
            "BEGIN UPDATE configuration SET version = version + 1 WHERE NOT changing; END"
        )


def downgrade() -> None:
    op.drop_table(TABLE)
