"""Subscriptions: readers with a URL, how their calls went, and services of gateways that call them.

SQLite can't change a check of a table. Its text is edited in the schema, as 0027 explains.
"""

import re

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
IDENTIFIER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

OF_SERVICE = (
    "worker: answers items, one of its roles gets an event; consumer: ends the line, all its roles get it; "
    "reader: reads the log at its own pace, no node asks for it; runner: its programs run bots"
)


def upgrade() -> None:
    _check_kind("service", ("worker", "consumer", "reader", "runner", "gateway"))
    if _is_postgresql():
        op.alter_column("service", "kind", comment=f"{OF_SERVICE}; gateway: they call subscribers.")
    op.create_table(
        "subscription",
        sa.Column("id", IDENTIFIER, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("service_id", IDENTIFIER, nullable=False, comment="The reader that it stands on."),
        sa.Column("url", sa.Text(), nullable=False, comment="The address that gateways call."),
        sa.Column("format", sa.String(16), nullable=False, comment="The format of the bodies of calls."),
        sa.Column(
            "secret",
            sa.Text(),
            nullable=False,
            comment="Signs the calls, and so it is kept as it is; empty for none. Nothing shows it.",
        ),
        sa.Column(
            "verify",
            sa.Boolean(create_constraint=False),
            nullable=False,
            comment="Whether the certificate of the subscriber is checked.",
        ),
        sa.Column("removed_at", MOMENT, comment="When it was taken out of use; null while in use."),
        sa.CheckConstraint("format IN ('json', 'cloudevents', 'routemaster')", name=op.f("ck_subscription_format")),
        sa.ForeignKeyConstraint(["service_id"], ["service.id"], name="fk_subscription_service_id"),
        sa.PrimaryKeyConstraint("id", name="pk_subscription"),
        sa.UniqueConstraint("name", name="uq_subscription_name"),
        sa.UniqueConstraint("service_id", name="uq_subscription_service_id"),
        comment="A reader with a URL: gateways call it back with batches.",
    )
    op.create_table(
        "subscription_state",
        sa.Column("service_id", IDENTIFIER, autoincrement=False, nullable=False),
        sa.Column(
            "failures",
            sa.Integer(),
            nullable=False,
            server_default=sa.text("0"),
            comment="Calls that failed one after another.",
        ),
        sa.Column("failing_since", MOMENT, comment="When the first of these failed; null while it is well."),
        sa.Column("failed_at", MOMENT, comment="When the last of these failed; null without any."),
        sa.Column("retry_at", MOMENT, comment="Until when nobody calls; null while it is well."),
        sa.Column("code", sa.String(64), comment="The code of the last failure."),
        sa.Column("error", sa.Text(), comment="The last failure in words."),
        sa.Column("ended_at", MOMENT, comment="When the subscriber said that it wants no more; null while it does."),
        sa.ForeignKeyConstraint(["service_id"], ["service.id"], name="fk_subscription_state_service_id"),
        sa.PrimaryKeyConstraint("service_id", name="pk_subscription_state"),
        comment="How the calls of a subscription went.",
    )
    _notice_edits()


def _check_kind(table: str, kinds: tuple[str, ...]) -> None:
    """Let the column ``kind`` of a table have these values."""
    check = f"kind IN ({', '.join(repr(kind) for kind in kinds)})"
    if _is_postgresql():
        op.drop_constraint(op.f(f"ck_{table}_kind"), table, type_="check")
        op.create_check_constraint(op.f(f"ck_{table}_kind"), table, check)
        return
    connection = op.get_bind()
    written = connection.execute(
        sa.text("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = :name"), {"name": table}
    ).scalar_one()
    wanted, changed = re.subn(r"kind IN \([^)]*\)", check, written)
    if changed != 1:
        raise RuntimeError(f"the table {table} has no check of its kind, or several")
    version = connection.execute(sa.text("PRAGMA schema_version")).scalar_one()
    connection.execute(sa.text("PRAGMA writable_schema = ON"))
    connection.execute(
        sa.text("UPDATE sqlite_master SET sql = :sql WHERE type = 'table' AND name = :name"),
        {"sql": wanted, "name": table},
    )
    connection.execute(sa.text(f"PRAGMA schema_version = {version + 1}"))
    connection.execute(sa.text("PRAGMA writable_schema = OFF"))


def _notice_edits() -> None:
    """Count the version of the configuration up with each edit by SQL, as 0016 explains."""
    if _is_postgresql():
        op.execute(
            "CREATE TRIGGER edited_subscription AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON subscription "
            "FOR EACH STATEMENT EXECUTE FUNCTION xbus_configuration_edited()"
        )
        return
    for event in ("INSERT", "UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER edited_subscription_{event.lower()} AFTER {event} ON subscription "
            f"BEGIN UPDATE configuration SET version = version + 1 WHERE NOT changing; END"
        )


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def downgrade() -> None:
    op.execute(
        "UPDATE service SET removed_at = CURRENT_TIMESTAMP "
        "WHERE removed_at IS NULL AND id IN (SELECT service_id FROM subscription)"
    )
    op.drop_table("subscription_state")
    op.drop_table("subscription")
    gateways = "SELECT role.id FROM role JOIN service ON service.id = role.service_id WHERE service.kind = 'gateway'"
    for statement in (
        f"UPDATE reader_range SET owner = NULL, expires_at = NULL, role_id = NULL WHERE role_id IN ({gateways})",
        f"DELETE FROM session WHERE role_id IN ({gateways})",
        f"DELETE FROM api_token WHERE role_id IN ({gateways})",
        f"DELETE FROM role WHERE id IN ({gateways})",
        "DELETE FROM service WHERE kind = 'gateway'",
    ):
        op.execute(statement)
    _check_kind("service", ("worker", "consumer", "reader", "runner"))
