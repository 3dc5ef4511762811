"""Bots: programs that the bus starts, their runs, and services of runners.

SQLite can't change a check of a table. Its text is edited in the schema, as https://www.sqlite.org/lang_altertable.html
describes for changes that leave the rows as they are; so the table keeps its triggers, and all that refers to it.
"""

import re

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)

# SQLite counts up by itself only where the primary key's type is exactly INTEGER.
IDENTIFIER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

OF_SERVICE = (
    "worker: answers items, one of its roles gets an event; consumer: ends the line, all its roles get it; "
    "reader: reads the log at its own pace, no node asks for it; runner: its programs run bots."
)
OF_PAUSED = "The table that subject_id is of: role, service, event_type, emitter or bot."


def upgrade() -> None:
    _check_kind("service", ("worker", "consumer", "reader", "runner"))
    _check_kind("pause", ("role", "service", "type", "emitter", "bot"))
    if _is_postgresql():
        op.alter_column("service", "kind", comment=OF_SERVICE)
        op.alter_column("pause", "kind", comment=OF_PAUSED)
        op.create_table_comment(
            "pause",
            "Something for which nothing new begins, until an operator resumes it. The row goes then.",
        )
    _create_tables()
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


def _create_tables() -> None:
    op.create_table(
        "bot",
        sa.Column("id", IDENTIFIER, primary_key=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column(
            "service_id",
            IDENTIFIER,
            sa.ForeignKey("service.id", name=op.f("fk_bot_service_id")),
            comment="Its runners; null for those of the only such service.",
        ),
        sa.Column(
            "emitter_id",
            IDENTIFIER,
            sa.ForeignKey("emitter.id", name=op.f("fk_bot_emitter_id")),
            nullable=False,
            comment="The emitter as which it writes; what the profile of that allows is what it emits.",
        ),
        sa.Column("call", sa.Text(), nullable=False, comment="module:function that a run calls; empty for a command."),
        sa.Column(
            "command",
            sa.JSON(none_as_null=True),
            nullable=False,
            comment="A program and its arguments, or none.",
        ),
        sa.Column("cron", sa.Text(), nullable=False, comment="When it runs, as crontab(5); empty for never by itself."),
        sa.Column("timezone", sa.Text(), nullable=False, comment="The zone of cron, a name of the IANA database."),
        sa.Column(
            "missed",
            sa.String(16),
            nullable=False,
            comment="What becomes of slots at which nobody could look: the last one is made up for, all are, or none.",
        ),
        sa.Column("instances", sa.Integer(), nullable=False, comment="So many of its runs may be under way at once."),
        sa.Column("max_seconds", sa.Float(), nullable=False, comment="Seconds after which a run is ended."),
        sa.Column("attempts", sa.Integer(), nullable=False, comment="How often a run is tried before it has failed."),
        sa.Column("settings", sa.JSON(none_as_null=True), nullable=False, comment="A map that each run gets."),
        sa.Column("description", sa.Text(), nullable=False, comment="What it is for, in the words of its owner."),
        sa.Column("removed_at", MOMENT, comment="When it was taken out of use; null while in use."),
        sa.PrimaryKeyConstraint("id", name="pk_bot"),
        sa.UniqueConstraint("name", name="uq_bot_name"),
        sa.CheckConstraint("missed IN ('once', 'all', 'skip')", name=op.f("ck_bot_missed")),
        comment="A program that the bus starts by time, or when a person asks for it.",
    )
    op.create_table(
        "bot_state",
        sa.Column("bot_id", IDENTIFIER, sa.ForeignKey("bot.id", name=op.f("fk_bot_state_bot_id")), nullable=False),
        sa.Column("slots_until", MOMENT, nullable=False, comment="About slots up to here is decided."),
        sa.Column(
            "failures",
            sa.Integer(),
            nullable=False,
            server_default=sa.text("0"),
            comment="Attempts that failed one after another.",
        ),
        sa.Column("failed_at", MOMENT, comment="When the last of these failed; null without any."),
        sa.Column(
            "slowed_until",
            MOMENT,
            comment="Until when nothing of it begins, as too many attempts failed. Null while it is well.",
        ),
        sa.PrimaryKeyConstraint("bot_id", name="pk_bot_state"),
        comment="How far a bot has come with its slots, and whether it is well.",
    )
    op.create_table(
        "bot_run",
        sa.Column("id", IDENTIFIER, primary_key=True),
        sa.Column("bot_id", IDENTIFIER, sa.ForeignKey("bot.id", name=op.f("fk_bot_run_bot_id")), nullable=False),
        sa.Column("slot", MOMENT, comment="The moment of its cron for which it is; null for one that a person fired."),
        sa.Column("state", sa.String(16), nullable=False, comment="See xbus/states.py."),
        sa.Column("due_at", MOMENT, nullable=False, comment="From when on a runner may take it."),
        sa.Column("attempts", sa.Integer(), nullable=False, comment="How often it was begun and counted."),
        sa.Column(
            "role_id",
            IDENTIFIER,
            sa.ForeignKey("role.id", name=op.f("fk_bot_run_role_id")),
            comment="The runner that has it, or had it last; null before the first.",
        ),
        sa.Column("program", sa.Uuid(), comment="The program of that runner: only this one may end it."),
        sa.Column(
            "ticket_hash",
            sa.LargeBinary(32),
            comment="SHA-256 of the word by which the run may log in at the front.",
        ),
        sa.Column(
            "lease_until",
            MOMENT,
            comment="While it runs: its runner is lost unless it is heard of by then.",
        ),
        sa.Column("started_at", MOMENT, comment="When its last attempt began."),
        sa.Column("ended_at", MOMENT, comment="When its last attempt ended."),
        sa.Column("code", sa.String(64), comment="The code of the last failure."),
        sa.Column("error", sa.Text(), comment="The last failure in words."),
        sa.Column("log", sa.Text(), comment="The end of what its last attempt printed."),
        sa.PrimaryKeyConstraint("id", name="pk_bot_run"),
        sa.UniqueConstraint("bot_id", "slot", name="uq_bot_run_bot_id_slot"),
        sa.CheckConstraint("state IN ('due', 'running', 'done', 'failed')", name=op.f("ck_bot_run_state")),
        comment="A run of a bot. Its one row for each slot makes it happen once, however many brokers and runners look.",
    )
    op.create_index("ix_bot_run_state", "bot_run", ["state", "due_at"])


def _notice_edits() -> None:
    """Count the version of the configuration up with each edit of bots by SQL, as 0016 explains."""
    if _is_postgresql():
        op.execute(
            "CREATE TRIGGER edited_bot AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON bot "
            "FOR EACH STATEMENT EXECUTE FUNCTION xbus_configuration_edited()"
        )
        return
    for event in ("INSERT", "UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER edited_bot_{event.lower()} AFTER {event} ON bot "
            f"BEGIN UPDATE configuration SET version = version + 1 WHERE NOT changing; END"
        )


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def downgrade() -> None:
    op.drop_table("bot_run")
    op.drop_table("bot_state")
    op.drop_table("bot")
    runners = "SELECT role.id FROM role JOIN service ON service.id = role.service_id WHERE service.kind = 'runner'"
    for statement in (
        "DELETE FROM pause WHERE kind = 'bot'",
        f"DELETE FROM session WHERE role_id IN ({runners})",
        f"DELETE FROM role WHERE id IN ({runners})",
        "DELETE FROM service WHERE kind = 'runner'",
    ):
        op.execute(statement)
    _check_kind("service", ("worker", "consumer", "reader"))
    _check_kind("pause", ("role", "service", "type", "emitter"))
