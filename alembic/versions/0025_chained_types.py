"""Nodes emit: the bus itself provides their services, and writes as their emitters.

The triggers of 0016 and 0017 on emitters name the columns that they watch, so that table gets new ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

KIND = (
    "program: one that logs in; node, bot: the bus itself writes for a node that emits, or for a bot, and nobody can "
    "log in."
)
KINDS = "kind IN ('program', 'node', 'bot')"
OF_TABLE = "A service that the bus itself provides, for one node that emits: it has one role, and one emitter."
EMITS = "As which what comes is emitted."
ASIDE = "Whether it gets only items whose worker names the event type as which it emits."
OF_EMITTER = "A program that sends envelopes, or a part of the bus that writes them."

# SQLite counts up by itself only where the primary key's type is exactly INTEGER.
IDENTIFIER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

UNWATCHED = "password_hash"
"""The broker itself writes it, when somebody logs in."""


def upgrade() -> None:
    _add_kind()
    op.add_column("node", sa.Column("aside", sa.Boolean(), nullable=False, server_default=sa.false(), comment=ASIDE))
    op.create_table(
        "emitting_service",
        sa.Column("service_id", IDENTIFIER, nullable=False),
        sa.Column("event_type_id", IDENTIFIER, nullable=False, comment=EMITS),
        sa.PrimaryKeyConstraint("service_id", name="pk_emitting_service"),
        sa.ForeignKeyConstraint(["service_id"], ["service.id"], name="fk_emitting_service_service_id"),
        sa.ForeignKeyConstraint(["event_type_id"], ["event_type.id"], name="fk_emitting_service_event_type_id"),
        comment=OF_TABLE,
    )
    if _is_postgresql():
        op.execute(
            "CREATE TRIGGER edited_emitting_service AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON emitting_service "
            "FOR EACH STATEMENT EXECUTE FUNCTION xbus_graphs_edited()"
        )
    else:
        for event in ("INSERT", "UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER edited_emitting_service_{event.lower()} AFTER {event} ON emitting_service "
                "BEGIN UPDATE configuration SET version = version + 1, graph_edits = graph_edits + 1 "
                "WHERE NOT changing; END"
            )


def _add_kind() -> None:
    _drop_trigger()
    if _is_postgresql():
        op.add_column(
            "emitter", sa.Column("kind", sa.String(16), nullable=False, server_default="program", comment=KIND)
        )
        op.create_check_constraint(op.f("ck_emitter_kind"), "emitter", KINDS)
        op.create_table_comment("emitter", OF_EMITTER)
    else:
        # Alembic makes no constraint of a column that it adds to a table of SQLite.
        op.execute(
            "ALTER TABLE emitter ADD COLUMN kind VARCHAR(16) DEFAULT 'program' NOT NULL "
            f"CONSTRAINT ck_emitter_kind CHECK ({KINDS})"
        )
    _create_trigger()


def downgrade() -> None:
    op.drop_table("emitting_service")
    op.drop_column("node", "aside")
    _drop_trigger()
    if _is_postgresql():
        op.drop_constraint(op.f("ck_emitter_kind"), "emitter")
    op.drop_column("emitter", "kind")
    _create_trigger()


def _drop_trigger() -> None:
    op.execute("DROP TRIGGER edited_emitter ON emitter" if _is_postgresql() else "DROP TRIGGER edited_emitter_update")


def _create_trigger() -> None:
    names = [column["name"] for column in sa.inspect(op.get_bind()).get_columns("emitter")]
    update = f"UPDATE OF {', '.join(name for name in names if name != UNWATCHED)}"
    if _is_postgresql():
        op.execute(
            f"CREATE TRIGGER edited_emitter AFTER INSERT OR {update} OR DELETE OR TRUNCATE ON emitter "
            f"FOR EACH STATEMENT EXECUTE FUNCTION xbus_configuration_edited()"
        )
    else:
        op.execute(
            f"CREATE TRIGGER edited_emitter_update AFTER {update} ON emitter "
            f"BEGIN UPDATE configuration SET version = version + 1 WHERE NOT changing; END"
        )


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"
