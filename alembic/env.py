"""How Alembic reaches the database: over the connection it is handed, or over alembic.ini's address in a checkout."""

from typing import Any

import sqlalchemy as sa
from alembic import context

from xbus.broker.journal.database.engine import create_engine
from xbus.model import metadata


def compare_default(context: Any, reflected: Any, column: sa.Column[Any], *others: Any) -> bool | None:
    """Leave defaults of JSON out, as PostgreSQL can't compare them; None compares as usual."""
    return False if isinstance(column.type, sa.JSON) else None


def migrate(connection: sa.Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        compare_server_default=compare_default,
        transactional_ddl=True,  # the journal's engine opens SQLite's transactions itself, so that they hold DDL too
    )
    with context.begin_transaction():
        context.run_migrations()


handed_over = context.config.attributes.get("connection")
if handed_over is not None:
    migrate(handed_over)
else:
    with create_engine(context.config.get_main_option("sqlalchemy.url") or "").connect() as connection:
        migrate(connection)
