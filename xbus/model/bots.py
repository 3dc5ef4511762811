"""Tables of bots: programs that the bus starts, and each time that it started them.

``bot`` is configuration. ``bot_state`` and ``bot_run`` change while the bus runs.
"""

from sqlalchemy import (
    JSON,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from xbus.model.base import Counter, Timestamp, metadata, one_of, required

bot = Table(
    "bot",
    metadata,
    Column("id", Counter, primary_key=True),
    required("name", String(255), unique=True),
    Column("service_id", ForeignKey("service.id"), comment="Its runners; null for those of the only such service."),
    required(
        "emitter_id",
        ForeignKey("emitter.id"),
        comment="The emitter as which it writes; what the profile of that allows is what it emits.",
    ),
    required("call", Text, server_default=text("''"), comment="module:function that a run calls; empty for a command."),
    required(
        "command", JSON(none_as_null=True), server_default=text("'[]'"), comment="A program and its arguments, or none."
    ),
    required(
        "cron", Text, server_default=text("''"), comment="When it runs, as crontab(5); empty if cron never starts it."
    ),
    required("timezone", Text, server_default=text("'UTC'"), comment="The zone of cron, a name of the IANA database."),
    one_of(
        "missed",
        ("once", "all", "skip"),
        server_default="once",
        comment="What becomes of slots at which nobody could look: the last one is made up for, all are, or none.",
    ),
    required("instances", Integer, server_default=text("1"), comment="So many of its runs may be under way at once."),
    required("max_seconds", Float, server_default=text("3600"), comment="Seconds after which a run is ended."),
    required("attempts", Integer, server_default=text("3"), comment="How often a run is tried before it has failed."),
    required("settings", JSON(none_as_null=True), server_default=text("'{}'"), comment="A map that each run gets."),
    required("description", Text, server_default=text("''"), comment="What it is for, in the words of its owner."),
    Column("removed_at", Timestamp, comment="When it was taken out of use; null while in use."),
    comment="A program that the bus starts by time, or when a person asks for it.",
)

bot_state = Table(
    "bot_state",
    metadata,
    Column("bot_id", ForeignKey("bot.id"), primary_key=True),
    required("slots_until", Timestamp, comment="About slots up to here is decided."),
    required("failures", Integer, server_default=text("0"), comment="Attempts that failed one after another."),
    Column("failed_at", Timestamp, comment="When the last of these failed; null without any."),
    Column(
        "slowed_until",
        Timestamp,
        comment="Until when nothing of it begins, as too many attempts failed. Null while it is well.",
    ),
    comment="How far a bot has come with its slots, and whether it is well.",
)

bot_run = Table(
    "bot_run",
    metadata,
    Column("id", Counter, primary_key=True),
    required("bot_id", ForeignKey("bot.id")),
    Column("slot", Timestamp, comment="The moment of its cron for which it is; null for one that a person fired."),
    Column("batch", String(255), comment="The batch for which it is: its range and its bounds."),
    one_of("state", ("due", "running", "done", "failed"), comment="See xbus/states.py."),
    required("due_at", Timestamp, comment="From when on a runner may take it."),
    required("attempts", Integer, comment="How often it was begun and counted."),
    Column("role_id", ForeignKey("role.id"), comment="The runner that has it, or had it last; null before the first."),
    Column("program", Uuid, comment="The program of that runner: only this one may end it."),
    Column("ticket_hash", LargeBinary(32), comment="SHA-256 of the word by which the run may log in at the front."),
    Column("lease_until", Timestamp, comment="While it runs: its runner is lost unless it is heard of by then."),
    Column("started_at", Timestamp, comment="When its last attempt began."),
    Column("ended_at", Timestamp, comment="When its last attempt ended."),
    Column("code", String(64), comment="The code of the last failure."),
    Column("error", Text, comment="The last failure in words."),
    Column("log", Text, comment="The end of what its last attempt printed."),
    UniqueConstraint("bot_id", "slot"),
    Index("ix_bot_run_state", "state", "due_at"),
    Index("ix_bot_run_batch", "bot_id", "batch", unique=True),
    comment="A run of a bot. Its one row for each slot makes it happen once, however many brokers and runners look.",
)

MOST_LOG_BYTES = 65_536
"""The bytes of a run's log that are kept."""
