"""Triggers raise the version of the configuration when an administrator edits its tables by SQL.

A migration that rebuilds one of these tables in SQLite has to make its triggers anew.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

TABLES = ("emitter_profile", "emitter", "event_type", "profile_event_type", "service", "role", "graph", "pause")
OF_GRAPHS = ("node", "edge")
"""Tables of graphs, which are immutable but for such edits."""

CHANGING = (
    "Whether the present transaction counts the version up by itself, so that triggers need not. Never committed."
)
GRAPH_EDITS = "How often graphs were edited by SQL: a running broker reads all of them anew."


UNWATCHED = {"emitter": "password_hash", "role": "password_hash"}
"""Columns that are read anew whenever they matter. The broker itself writes them, when somebody logs in."""


def upgrade() -> None:
    op.add_column(
        "configuration",
        sa.Column("changing", sa.Boolean(), nullable=False, server_default=sa.false(), comment=CHANGING),
    )
    op.add_column(
        "configuration", sa.Column("graph_edits", sa.Integer(), nullable=False, server_default="0", comment=GRAPH_EDITS)
    )
    if op.get_bind().dialect.name == "postgresql":
        _upgrade_postgresql()
    else:
        _upgrade_sqlite()


def _upgrade_sqlite() -> None:
    for table in (*TABLES, *OF_GRAPHS):
        for event in ("INSERT", _update_of(table), "DELETE"):
            op.execute(
                f"CREATE TRIGGER edited_{table}_{event.split()[0].lower()} AFTER {event} ON {table} "
                f"BEGIN UPDATE configuration SET {_counted(table)} WHERE NOT changing; END"
            )


def _upgrade_postgresql() -> None:
    for function, table in (("xbus_configuration_edited", "role"), ("xbus_graphs_edited", "node")):
        op.execute(
            f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ "
            f"BEGIN UPDATE configuration SET {_counted(table)} WHERE NOT changing; RETURN NULL; END $$"
        )
    for table in (*TABLES, *OF_GRAPHS):
        function = "xbus_graphs_edited" if table in OF_GRAPHS else "xbus_configuration_edited"
        op.execute(
            f"CREATE TRIGGER edited_{table} AFTER INSERT OR {_update_of(table)} OR DELETE OR TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
        )


def _update_of(table: str) -> str:
    if table not in UNWATCHED:
        return "UPDATE"
    columns = [column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)]
    return f"UPDATE OF {', '.join(name for name in columns if name != UNWATCHED[table])}"


def _counted(table: str) -> str:
    return "version = version + 1" + (", graph_edits = graph_edits + 1" if table in OF_GRAPHS else "")


def downgrade() -> None:
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for table in (*TABLES, *OF_GRAPHS):
        if is_postgresql:
            op.execute(f"DROP TRIGGER edited_{table} ON {table}")
        else:
            for event in ("insert", "update", "delete"):
                op.execute(f"DROP TRIGGER edited_{table}_{event}")
    if is_postgresql:
        op.execute("DROP FUNCTION xbus_configuration_edited()")
        op.execute("DROP FUNCTION xbus_graphs_edited()")
    op.drop_column("configuration", "graph_edits")
    op.drop_column("configuration", "changing")
