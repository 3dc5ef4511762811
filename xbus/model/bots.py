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
)

from xbus.model.base import Counter, Timestamp, metadata, one_of, optional, required

bot = Table(
    "bot",
    metadata,
    Column("id", Counter, primary_key=True),
    required("name", String(255), unique=True),
    optional("service_id", ForeignKey("service.id"), "Its runners; null for those of the only such service."),
    required(
        "emitter_id",
        ForeignKey("emitter.id"),
        "The emitter as which it writes; what the profile of that allows is what it emits.",
    ),
    required("call", Text, "module:function that a run calls; empty for a command.", otherwise="''"),
    required("command", JSON(none_as_null=True), "A program and its arguments, or none.", otherwise="'[]'"),
    required("cron", Text, "When it runs, as crontab(5); empty if cron never starts it.", otherwise="''"),
    required("timezone", Text, "The zone of cron, a name of the IANA database.", otherwise="'UTC'"),
    one_of(
        "missed",
        ("once", "all", "skip"),
        "What becomes of slots at which nobody could look: the last one is made up for, all are, or none.",
        server_default="once",
    ),
    required("instances", Integer, "So many of its runs may be under way at once.", otherwise="1"),
    required("max_seconds", Float, "Seconds after which a run is ended.", otherwise="3600"),
    required("attempts", Integer, "How often a run is tried before it has failed.", otherwise="3"),
    required("settings", JSON(none_as_null=True), "A map that each run gets.", otherwise="'{}'"),
    required("description", Text, "What it is for, in the words of its owner.", otherwise="''"),
    optional("removed_at", Timestamp, "When it was taken out of use; null while in use."),
    comment="A program that the bus starts by time, or when a person asks for it.",
)

bot_state = Table(
    "bot_state",
    metadata,
    Column("bot_id", ForeignKey("bot.id"), primary_key=True),
    required("slots_until", Timestamp, "About slots up to here is decided."),
    required("failures", Integer, "Attempts that failed one after another.", otherwise="0"),
    optional("failed_at", Timestamp, "When the last of these failed; null without any."),
    optional(
        "slowed_until",
        Timestamp,
        "Until when nothing of it begins, as too many attempts failed. Null while it is well.",
    ),
    comment="How far a bot has come with its slots, and whether it is well.",
)

bot_run = Table(
    "bot_run",
    metadata,
    Column("id", Counter, primary_key=True),
    required("bot_id", ForeignKey("bot.id")),
    optional("slot", Timestamp, "The moment of its cron for which it is; null for one that a person fired."),
    optional("batch", String(255), "The batch for which it is: its range and its bounds."),
    one_of("state", ("due", "running", "done", "failed"), "See xbus/states.py."),
    required("due_at", Timestamp, "From when on a runner may take it."),
    required("attempts", Integer, "How often it was begun and counted."),
    optional("role_id", ForeignKey("role.id"), "The runner that has it, or had it last; null before the first."),
    optional("program", Uuid, "The program of that runner: only this one may end it."),
    optional("ticket_hash", LargeBinary(32), "SHA-256 of the word by which the run may log in at the front."),
    optional("lease_until", Timestamp, "While it runs: its runner is lost unless it is heard of by then."),
    optional("started_at", Timestamp, "When its last attempt began."),
    optional("ended_at", Timestamp, "When its last attempt ended."),
    optional("code", String(64), "The code of the last failure."),
    optional("error", Text, "The last failure in words."),
    optional("log", Text, "The end of what its last attempt printed."),
    UniqueConstraint("bot_id", "slot"),
    Index("ix_bot_run_state", "state", "due_at"),
    Index("ix_bot_run_batch", "bot_id", "batch", unique=True),
    comment="A run of a bot. Its one row for each slot makes it happen once, however many brokers and runners look.",
)

MOST_LOG_BYTES = 65_536
"""The bytes of a run's log that are kept."""
