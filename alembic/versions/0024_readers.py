"""Readers: a third kind of service, with settings, ranges, places and a history."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

OF_CONFIGURATION = ("reader", "reader_event_type")
"""Tables that administrators may edit by SQL; the others are the broker's."""

WITHOUT_READERS = "'worker', 'consumer'"
WITH_READERS = "'worker', 'consumer', 'reader'"

KIND = (
    "worker: answers items, one of its roles gets an event; consumer: ends the line, all its roles get it; "
    "reader: reads the log at its own pace, no node asks for it."
)
SERVICE = "What a node of a graph asks for, or a reader of the log; its roles provide it."

IDENTIFIER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
HASH = sa.String(16)
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    _change_kinds(WITHOUT_READERS, WITH_READERS)
    if _is_postgresql():
        op.alter_column("service", "kind", comment=KIND)
        op.create_table_comment("service", SERVICE)
    _create_settings()
    _create_ranges()
    _create_history()
    for table in OF_CONFIGURATION:
        _create_triggers(table)


def _create_settings() -> None:
    op.create_table(
        "reader",
        _reference("service_id"),
        _number("ranges", "With how many ranges it began.", sa.Integer()),
        _number("lease", "Seconds after which a range of a silent program is given away.", sa.Float()),
        _number("batch_items", "The most items of a batch.", sa.Integer()),
        _number("batch_bytes", "The bytes of items at which a batch ends.", sa.Integer()),
        _number("batch_wait", "Seconds that a batch waits for more items; 0 for none.", sa.Float()),
        sa.Column("keeps", sa.Boolean(), nullable=False, comment="Whether retention waits for it."),
        sa.PrimaryKeyConstraint("service_id", name="pk_reader"),
        sa.ForeignKeyConstraint(["service_id"], ["service.id"], name="fk_reader_service_id"),
        comment="The settings of a reader.",
    )
    op.create_table(
        "reader_event_type",
        _reference("service_id"),
        _reference("event_type_id"),
        sa.PrimaryKeyConstraint("service_id", "event_type_id", name="pk_reader_event_type"),
        sa.ForeignKeyConstraint(
            ["service_id"], ["reader.service_id"], name="fk_reader_event_type_service_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["event_type_id"], ["event_type.id"], name="fk_reader_event_type_event_type_id"),
        comment="The event types that a reader reads.",
    )


def _create_ranges() -> None:
    op.create_table(
        "reader_range",
        sa.Column("id", IDENTIFIER, nullable=False),
        _reference("service_id"),
        sa.Column("first", HASH, nullable=False, comment="The first hash of the range, as 16 hexadecimal digits."),
        sa.Column("last", HASH, nullable=False, comment="The last hash of the range."),
        sa.Column("owner", sa.Uuid(), comment="The program that reads it; null for none."),
        sa.Column("role_id", IDENTIFIER, comment="By which role its owner logged in."),
        sa.Column(
            "counter",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="Grows with each change of its owner or its place, so that what the former owner says is refused.",
        ),
        sa.Column("expires_at", MOMENT, comment="When the lease ends, as last written: the back knows of later calls."),
        sa.Column(
            "handed_out",
            sa.Boolean(),
            nullable=False,
            server_default=sa.false(),
            comment="Whether a batch is out, so that what is read next is a repeat of it.",
        ),
        sa.Column(
            "skipped",
            sa.BigInteger(),
            nullable=False,
            server_default=sa.text("0"),
            comment="Envelopes that retention removed.",
        ),
        sa.Column("settled_at", MOMENT, comment="When a batch of it was settled last."),
        sa.Column("completed_at", MOMENT, comment="When it was split or merged; null while it is read."),
        sa.PrimaryKeyConstraint("id", name="pk_reader_range"),
        sa.ForeignKeyConstraint(["service_id"], ["reader.service_id"], name="fk_reader_range_service_id"),
        sa.ForeignKeyConstraint(["role_id"], ["role.id"], name="fk_reader_range_role_id"),
        comment="A stretch of the ring of hashes that one program at a time reads. The ranges in use tile the ring.",
    )
    op.create_index("ix_reader_range_service_id", "reader_range", ["service_id", "completed_at"])
    op.create_table(
        "reader_stretch",
        _reference("range_id"),
        sa.Column("first", HASH, nullable=False, comment="The first hash of the stretch."),
        sa.Column("last", HASH, nullable=False, comment="The last hash of the stretch."),
        _number("position", "The place of the next item to be read: the envelope."),
        _number("event", "The index of its event."),
        _number("item", "The index of its item."),
        sa.Column("to_position", sa.BigInteger(), comment="Where the batch that is out ends; null where none is."),
        sa.Column("to_event", sa.BigInteger(), comment="The index of the event there."),
        sa.Column("to_item", sa.BigInteger(), comment="The index of the item there, which is not in the batch."),
        sa.PrimaryKeyConstraint("range_id", "first", name="pk_reader_stretch"),
        sa.ForeignKeyConstraint(
            ["range_id"], ["reader_range.id"], name="fk_reader_stretch_range_id", ondelete="CASCADE"
        ),
        comment="What stands at one place: mostly a whole range. One that was merged has several until they have met.",
    )


def _create_history() -> None:
    op.create_table(
        "reader_move",
        sa.Column("id", IDENTIFIER, nullable=False),
        _reference("service_id"),
        sa.Column("act", sa.Uuid(), nullable=False, comment="The same for all that was moved at once."),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("who", sa.String(255), nullable=False, comment="The login of the program, or the person."),
        sa.Column("kind", sa.String(16), nullable=False, comment="checkpoint, move, undo, split or merge."),
        sa.Column("reason", sa.Text(), nullable=False, server_default=sa.text("''"), comment="As the person gave it."),
        sa.Column("undoes", sa.Uuid(), comment="The act that this one undoes."),
        sa.Column("first", HASH, nullable=False, comment="The first hash of the stretch that was moved."),
        sa.Column("last", HASH, nullable=False, comment="The last hash of it."),
        *(
            _number(f"{side}_{part}", f"{words}: the {part}.")
            for side, words in (("from", "The place before"), ("to", "The place after"))
            for part in ("position", "event", "item")
        ),
        sa.PrimaryKeyConstraint("id", name="pk_reader_move"),
        sa.ForeignKeyConstraint(["service_id"], ["reader.service_id"], name="fk_reader_move_service_id"),
        comment="The history of checkpoints, and of what people did to a reader's places.",
    )
    op.create_index("ix_reader_move_service_id", "reader_move", ["service_id", "id"])
    op.create_index("ix_reader_move_at", "reader_move", ["at"])


def _reference(name: str) -> sa.Column[int]:
    return sa.Column(name, IDENTIFIER, nullable=False, autoincrement=False)


def _number(name: str, comment: str, kind: sa.types.TypeEngine[float] | None = None) -> sa.Column[float]:
    return sa.Column(name, kind or sa.BigInteger(), nullable=False, comment=comment)


def _change_kinds(before: str, after: str) -> None:
    """Let the kind of a service be another one.

    SQLite keeps a check in the text of its table alone. Its documentation (https://sqlite.org/lang_altertable.html)
    names this way for a change that does not touch rows: the table, to which others refer, is not made anew.
    """
    if _is_postgresql():
        op.drop_constraint(op.f("ck_service_kind"), "service")
        op.create_check_constraint(op.f("ck_service_kind"), "service", f"kind IN ({after})")
        return
    connection = op.get_bind()
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    changed = connection.execute(
        sa.text(
            "UPDATE sqlite_master SET sql = replace(sql, :before, :after) "
            "WHERE type = 'table' AND name = 'service' AND instr(sql, :before) > 0"
        ),
        {"before": f"kind IN ({before})", "after": f"kind IN ({after})"},
    )
    if changed.rowcount != 1:
        raise RuntimeError("the table service has no check of its kind")
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = OFF")


def _create_triggers(table: str) -> None:
    if _is_postgresql():
        op.execute(
            f"CREATE TRIGGER edited_{table} AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION xbus_configuration_edited()"
        )
        return
    for event in ("INSERT", "UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER edited_{table}_{event.lower()} AFTER {event} ON {table} "
            "BEGIN UPDATE configuration SET version = version + 1 WHERE NOT changing; END"
        )


def downgrade() -> None:
    """Drop what readers have. A bus that has a reader can't go back, as its roles stay."""
    for table in ("reader_move", "reader_stretch", "reader_range", "reader_event_type", "reader"):
        op.drop_table(table)
    _change_kinds(WITH_READERS, WITHOUT_READERS)


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"
