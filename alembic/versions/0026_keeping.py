"""Event types say how long their settled events stay, and roles how far they may lag.

The triggers of 0016 on the table watch all its columns, so they notice edits of these, too.
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

INDEX = "ix_event_partition_key"

TABLE = "event_type"

LAG_LIMIT = "lag_limit"

COLUMNS = ("keep", "keep_bytes", "keep_last_per_key", "archive_after")


def upgrade() -> None:
    for_ever = "Seconds for which its settled events stay; infinite for ever, null for what is said elsewhere."
    op.add_column(TABLE, sa.Column("keep", sa.Float(), comment=for_ever))
    of_bytes = "Bytes of its newest events that stay; null for no such limit."
    op.add_column(TABLE, sa.Column("keep_bytes", sa.BigInteger(), comment=of_bytes))
    of_keys = "How many of the newest events of each partition key stay; null for no such limit."
    op.add_column(TABLE, sa.Column("keep_last_per_key", sa.Integer(), comment=of_keys))
    of_archive = "Seconds after which the broker moves its settled events into the archive; null for never."
    op.add_column(TABLE, sa.Column("archive_after", sa.Float(), comment=of_archive))
    keyed = sa.text("partition_key IS NOT NULL")
    op.create_index(INDEX, "event", ["event_type_id", "partition_key"], sqlite_where=keyed, postgresql_where=keyed)

    _make_lag_limit()


def _make_lag_limit() -> None:
    op.create_table(
        LAG_LIMIT,
        sa.Column(
            "kind", sa.String(16), nullable=False, comment="What subject_id is of: role, or the service of a reader."
        ),
        sa.Column(
            "subject_id", sa.BigInteger(), autoincrement=False, nullable=False, comment="The id of the limited row."
        ),
        sa.Column(
            "envelopes",
            sa.BigInteger(),
            comment="The most envelopes that it may lack; null where an age is the limit.",
        ),
        sa.Column(
            "seconds",
            sa.Float(),
            comment="The age in seconds that the oldest of them may have; null where a number is.",
        ),
        sa.Column(
            "when_behind",
            sa.String(16),
            nullable=False,
            comment="What the bus does beyond the limit: it tells people, takes it off the bus, or has it do without.",
        ),
        sa.PrimaryKeyConstraint("kind", "subject_id", name="pk_lag_limit"),
        sa.CheckConstraint("kind IN ('role', 'reader')", name=op.f("ck_lag_limit_kind")),
        sa.CheckConstraint("when_behind IN ('alarm', 'detach', 'skip')", name=op.f("ck_lag_limit_when_behind")),
        comment="How far a consumer role or a reader may lag.",
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            f"CREATE TRIGGER edited_{LAG_LIMIT} AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {LAG_LIMIT} "
            "FOR EACH STATEMENT EXECUTE FUNCTION xbus_configuration_edited()"
        )
        return
    for event in ("INSERT", "UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER edited_{LAG_LIMIT}_{event.lower()} AFTER {event} ON {LAG_LIMIT} "
            "BEGIN UPDATE configuration SET version = version + 1 WHERE NOT changing; END"
        )


def downgrade() -> None:
    op.drop_table(LAG_LIMIT)
    op.drop_index(INDEX, "event")
    for column in COLUMNS:
        op.drop_column(TABLE, column)
