"""Emitters and roles have the public keys by which they may log in over encrypted connections.

The triggers of 0016 name the columns that they watch, so these tables get new ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

TABLES = ("emitter", "role")
KEYS = "The keys by which it may log in over encrypted connections, in Z85 with blanks between them."

UNWATCHED = "password_hash"
"""The broker itself writes it, when somebody logs in."""


def upgrade() -> None:
    for table in TABLES:
        _drop_trigger(table)
        op.add_column(
            table, sa.Column("public_keys", sa.Text(), nullable=False, server_default=sa.text("''"), comment=KEYS)
        )
        _create_trigger(table)


def downgrade() -> None:
    for table in TABLES:
        _drop_trigger(table)
        op.drop_column(table, "public_keys")
        _create_trigger(table)


def _drop_trigger(table: str) -> None:
    op.execute(f"DROP TRIGGER edited_{table} ON {table}" if _is_postgresql() else f"DROP TRIGGER edited_{table}_update")


def _create_trigger(table: str) -> None:
    names = [column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)]
    update = f"UPDATE OF {', '.join(name for name in names if name != UNWATCHED)}"
    if _is_postgresql():
        op.execute(
            f"CREATE TRIGGER edited_{table} AFTER INSERT OR {update} OR DELETE OR TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION xbus_configuration_edited()"
        )
    else:
        op.execute(
            f"CREATE TRIGGER edited_{table}_update AFTER {update} ON {table} "
            f"BEGIN UPDATE configuration SET version = version + 1 WHERE NOT changing; END"
        )


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"
