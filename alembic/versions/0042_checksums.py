"""Rows get checksums, and edits of people, tokens, passwords and their like are counted, so that damage is found.

Rows of before have no checksum; nothing is compared for them until the bus writes them anew.
"""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

WITH_CHECKSUM = (
    "correction",
    "cursor",
    "delivery",
    "envelope",
    "envelope_role",
    "failure",
    "history",
    "parked_item",
    "presence",
    "reader_move",
    "reader_range",
    "reader_stretch",
    "reply",
)
CHECKSUM = "CRC-32 of the values that nothing else says, by which damage is found; null where it is not known."
IMPRINT = "What a broker has read of rarely written rows. `xbus fsck` finds those by it that damage has changed."
TABLE_NAME = "The table, or a part of it."
STEP = "Seconds: 10 for a sample as it was taken; more for what several of them came to."
VERSION = "The version of the configuration, or the count of its edits."

WATCHED = {
    "api_token": ("id", "name", "token_hash", "emitter_id", "role_id", "created_at"),
    "bot_state": (),
    "cursor": ("role_id", "from_position", "until_position"),
    "emission_profile": (),
    "emitter": ("password_hash",),
    "input_descriptor": (),
    "object_store": (),
    "person": ("id", "login", "password_hash", "display_name", "email", "rights", "created_at", "removed_at"),
    "person_session": ("id", "person_id", "token_hash", "origin", "created_at", "expires_at"),
    "person_token": ("id", "person_id", "name", "token_hash", "rights", "created_at", "expires_at"),
    "registration": (),
    "role": ("password_hash",),
    "subscription_state": (),
}
"""The columns of each table whose changes count; none for all."""


def upgrade() -> None:
    for table in WITH_CHECKSUM:
        op.add_column(table, sa.Column("checksum", sa.BigInteger(), comment=CHECKSUM))
    op.create_table(
        "edit_count",
        sa.Column("table_name", sa.String(63), nullable=False, comment="The table that triggers watch."),
        sa.Column(
            "edits",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            nullable=False,
            comment="Grows with each statement that changes what an imprint of the table covers.",
        ),
        sa.PrimaryKeyConstraint("table_name", name="pk_edit_count"),
        comment="Tells edits of tables that are no configuration from damage, as its version does for configuration.",
    )
    op.execute("DELETE FROM imprint")
    if _is_postgresql():
        op.execute(f"COMMENT ON TABLE imprint IS '{IMPRINT}'")
        op.execute(f"COMMENT ON COLUMN imprint.table_name IS '{TABLE_NAME}'")
        op.execute(f"COMMENT ON COLUMN imprint.version IS '{VERSION}'")
        op.execute(f"COMMENT ON COLUMN sample.step IS '{STEP}'")
    for table in WATCHED:
        op.execute(f"INSERT INTO edit_count VALUES ('{table}', 0)")
    if _is_postgresql():
        # Who may change a watched row need not be let into the table of counts.
        op.execute(
            "CREATE FUNCTION xbus_edit_counted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
            "SET search_path FROM CURRENT AS $$ BEGIN UPDATE edit_count SET edits = edits + 1 "
            "WHERE table_name = TG_TABLE_NAME; RETURN NULL; END $$"
        )
    for table, columns in WATCHED.items():
        _count_edits(table, f"UPDATE OF {', '.join(columns)}" if columns else "UPDATE")


def _count_edits(table: str, update: str) -> None:
    if _is_postgresql():
        op.execute(
            f"CREATE TRIGGER counted_{table} AFTER INSERT OR {update} OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION xbus_edit_counted()"
        )
        return
    for event in ("INSERT", update, "DELETE"):
        op.execute(
            f"CREATE TRIGGER counted_{table}_{event.split()[0].lower()} AFTER {event} ON {table} "
            f"BEGIN UPDATE edit_count SET edits = edits + 1 WHERE table_name = '{table}'; END"
        )


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def downgrade() -> None:
    for table in WATCHED:
        if _is_postgresql():
            op.execute(f"DROP TRIGGER counted_{table} ON {table}")
        else:
            for event in ("insert", "update", "delete"):
                op.execute(f"DROP TRIGGER counted_{table}_{event}")
    if _is_postgresql():
        op.execute("DROP FUNCTION xbus_edit_counted()")
    op.drop_table("edit_count")
    op.execute("DELETE FROM imprint")
    for table in WITH_CHECKSUM:
        op.drop_column(table, "checksum")
