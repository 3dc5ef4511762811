"""The tables of the first release, their first rows, and the triggers that notice edits by SQL and protect the audit.

Here a column has its type alone; ``xbus/model/`` explains it. A change before the release is made here and there. Later
changes are migrations behind this one.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0100"
down_revision = None
branch_labels = None
depends_on = None

TABLES = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

BIG = sa.BigInteger()
# SQLite counts up by itself only where the primary key's type is exactly INTEGER.
COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)
NAME = sa.String(255)


def _table(name: str, *items: Any, **options: Any) -> None:
    sa.Table(name, TABLES, *items, **options)


def _required(name: str, kind: Any, *checks: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, *checks, nullable=False, **options)


def _one_of(name: str, *words: str, **options: Any) -> sa.Column[Any]:
    listed = ", ".join(f"'{word}'" for word in words)
    check = sa.CheckConstraint(f"{name} IN ({listed})", name=name)
    return sa.Column(name, sa.String(16), check, nullable=False, **options)


def _partial(name: str, *columns: str, where: str, **options: Any) -> sa.Index:
    return sa.Index(name, *columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where), **options)


_table(
    "archive_run",
    sa.Column("id", sa.Uuid, primary_key=True),
    _required("started_at", MOMENT),
    _required("lease_until", MOMENT),
    sa.Column("ended_at", MOMENT),
    _partial("ix_archive_run_open", "ended_at", where="ended_at IS NULL"),
)
_table(
    "archive_file",
    sa.Column("id", sa.Uuid, primary_key=True),
    _required("run_id", sa.ForeignKey("archive_run.id")),
    _required("event_type_id", sa.ForeignKey("event_type.id")),
    _required("location", sa.Text),
    _one_of("state", "writing", "kept"),
    _required("first_position", BIG),
    _required("last_position", BIG),
    _required("items", BIG),
    sa.Column("bytes", BIG),
    sa.Index("ix_archive_file_event_type_id_last_position", "event_type_id", "last_position"),
    sa.Index("ix_archive_file_state", "state"),
)
_table(
    "archived_envelope",
    sa.Column("envelope_id", sa.ForeignKey("envelope.id"), primary_key=True),
    _required("archived_at", MOMENT),
    sa.Column("removed_at", MOMENT),
    sa.Column("restored_at", MOMENT),
    _partial("ix_archived_envelope_due", "archived_at", where="removed_at IS NULL"),
)
_table(
    "archived_event",
    sa.Column("event_id", sa.ForeignKey("event.id"), primary_key=True),
    _required("file_id", sa.ForeignKey("archive_file.id")),
    _required("segments", sa.Integer),
    _required("hash", sa.LargeBinary(32)),
    sa.Index("ix_archived_event_file_id", "file_id"),
)
_table(
    "audit",
    sa.Column("id", COUNTER, primary_key=True),
    _required("at", MOMENT),
    _required("who", NAME),
    _required("origin", NAME),
    _required("action", sa.String(64)),
    _required("object", sa.Text),
    _required("before", sa.Text),
    _required("after", sa.Text),
    _required("reason", sa.Text),
    sa.Column("number", BIG, unique=True),
    sa.Column("hash", sa.LargeBinary(32)),
    _partial("ix_audit_new", "id", where="number IS NULL"),
)
_table(
    "audit_head",
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True),
    _required("number", BIG),
    _required("hash", sa.LargeBinary(32)),
    _required("cut_number", BIG),
    _required("cut_hash", sa.LargeBinary(32)),
)
_table(
    "bot",
    sa.Column("id", COUNTER, primary_key=True),
    _required("name", NAME, unique=True),
    sa.Column("service_id", sa.ForeignKey("service.id")),
    _required("emitter_id", sa.ForeignKey("emitter.id")),
    _required("call", sa.Text, server_default=sa.text("''")),
    _required("command", sa.JSON, server_default=sa.text("'[]'")),
    _required("cron", sa.Text, server_default=sa.text("''")),
    _required("timezone", sa.Text, server_default=sa.text("'UTC'")),
    _one_of("missed", "once", "all", "skip", server_default="once"),
    _required("instances", sa.Integer, server_default=sa.text("1")),
    _required("max_seconds", sa.Float, server_default=sa.text("3600")),
    _required("attempts", sa.Integer, server_default=sa.text("3")),
    _required("settings", sa.JSON, server_default=sa.text("'{}'")),
    _required("description", sa.Text, server_default=sa.text("''")),
    sa.Column("removed_at", MOMENT),
)
_table(
    "bot_state",
    sa.Column("bot_id", sa.ForeignKey("bot.id"), primary_key=True),
    _required("slots_until", MOMENT),
    _required("failures", sa.Integer, server_default=sa.text("0")),
    sa.Column("failed_at", MOMENT),
    sa.Column("slowed_until", MOMENT),
)
_table(
    "bot_run",
    sa.Column("id", COUNTER, primary_key=True),
    _required("bot_id", sa.ForeignKey("bot.id")),
    sa.Column("slot", MOMENT),
    sa.Column("batch", NAME),
    _one_of("state", "due", "running", "done", "failed"),
    _required("due_at", MOMENT),
    _required("attempts", sa.Integer),
    sa.Column("role_id", sa.ForeignKey("role.id")),
    sa.Column("program", sa.Uuid),
    sa.Column("ticket_hash", sa.LargeBinary(32)),
    sa.Column("lease_until", MOMENT),
    sa.Column("started_at", MOMENT),
    sa.Column("ended_at", MOMENT),
    sa.Column("code", sa.String(64)),
    sa.Column("error", sa.Text),
    sa.Column("log", sa.Text),
    sa.UniqueConstraint("bot_id", "slot"),
    sa.Index("ix_bot_run_batch", "bot_id", "batch", unique=True),
    sa.Index("ix_bot_run_state", "state", "due_at"),
)
_table(
    "bulk_attempt",
    sa.Column("id", sa.Uuid, primary_key=True),
    _required("event_id", sa.ForeignKey("event.id")),
    _required("node_id", sa.ForeignKey("node.id")),
    _required("role_id", sa.ForeignKey("role.id")),
    _one_of("state", "building", "ready", "failed", "abandoned"),
    _required("started_at", MOMENT),
    _required("lease_until", MOMENT),
    _required("progress", sa.Float, server_default="0"),
    sa.Column("ended_at", MOMENT),
    sa.Column("code", sa.String(64)),
    sa.Column("cause", sa.Text),
    sa.Column("items", BIG),
    sa.Column("bytes", BIG),
    sa.Column("hash", sa.LargeBinary(32)),
    sa.Index("ix_bulk_attempt_event_id", "event_id"),
    _partial("ix_bulk_attempt_live", "event_id", "node_id", where="state IN ('building', 'ready')", unique=True),
    sa.Index("ix_bulk_attempt_state", "state"),
)
_table(
    "bulk_segment",
    sa.Column("attempt_id", sa.ForeignKey("bulk_attempt.id"), primary_key=True),
    sa.Column("part", sa.Integer, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    _required("items", sa.Integer),
    _required("hash", sa.LargeBinary(32)),
    _required("first_index", BIG),
    sa.Column("sources", sa.LargeBinary),
    _required("data", sa.LargeBinary),
)
_table(
    "configuration",
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True),
    _required("version", COUNTER),
    _required("changing", sa.Boolean, server_default=sa.false()),
    _required("graph_edits", sa.Integer, server_default="0"),
)
_table(
    "event_type",
    sa.Column("id", COUNTER, primary_key=True),
    _required("name", NAME, unique=True),
    _required("immediate_reply", sa.Boolean, server_default=sa.false()),
    _one_of("bad_items", "envelope", "isolate", server_default="envelope"),
    _required("max_isolated", sa.Integer, server_default="100"),
    _required("secret", sa.Text, server_default=sa.text("''")),
    sa.Column("keep", sa.Float),
    sa.Column("keep_bytes", BIG),
    sa.Column("keep_last_per_key", sa.Integer),
    sa.Column("archive_after", sa.Float),
    _required("compress", sa.String(16), server_default="none"),
    _required("first_name", NAME, server_default=sa.text("''")),
    sa.Column("publisher_id", BIG),
    _required("is_topic", sa.Boolean, server_default=sa.false()),
    sa.Column("removed_at", MOMENT),
)
_table(
    "profile_event_type",
    sa.Column("profile_id", sa.ForeignKey("emitter_profile.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("event_type_id", sa.ForeignKey("event_type.id"), primary_key=True),
)
_table(
    "service",
    sa.Column("id", COUNTER, primary_key=True),
    _required("name", NAME, unique=True),
    _required("key", sa.String(300), index=True, unique=True, server_default=sa.text("''")),
    _one_of("kind", "worker", "consumer", "reader", "runner", "gateway"),
    _one_of("failures", "shared", "own", server_default="shared"),
    sa.Column("attempts", sa.Integer),
    sa.Column("first_delay", sa.Float),
    sa.Column("longest_delay", sa.Float),
    sa.Column("jitter", sa.Float),
    sa.Column("removed_at", MOMENT),
)
_table(
    "emitting_service",
    sa.Column("service_id", sa.ForeignKey("service.id"), primary_key=True),
    _required("event_type_id", sa.ForeignKey("event_type.id")),
)
_table(
    "role",
    sa.Column("id", COUNTER, primary_key=True),
    _required("login", NAME, unique=True),
    sa.Column("password_hash", NAME),
    _required("service_id", sa.ForeignKey("service.id")),
    _required("ordered", sa.Boolean, server_default=sa.false()),
    sa.Column("absent_minutes", sa.Float),
    sa.Column("parked_minutes", sa.Float),
    _required("instances", sa.Integer, server_default=sa.text("1")),
    _required("standby", sa.Boolean, server_default=sa.false()),
    _required("public_keys", sa.Text, server_default=sa.text("''")),
    sa.Column("detached_at", MOMENT),
    sa.Column("removed_at", MOMENT),
)
_table(
    "graph",
    sa.Column("id", COUNTER, primary_key=True),
    _required("event_type_id", sa.ForeignKey("event_type.id")),
    _required("number", sa.Integer, server_default=sa.text("1")),
    _required("created_at", MOMENT, server_default=sa.func.now()),
    sa.UniqueConstraint("event_type_id", "number"),
)
_table(
    "node",
    sa.Column("id", COUNTER, primary_key=True),
    _required("graph_id", sa.ForeignKey("graph.id"), index=True),
    _required("name", NAME),
    _required("service_id", sa.ForeignKey("service.id")),
    _required("aside", sa.Boolean, server_default=sa.false()),
    sa.UniqueConstraint("graph_id", "name"),
)
_table(
    "edge",
    sa.Column("parent_id", sa.ForeignKey("node.id"), primary_key=True),
    sa.Column("child_id", sa.ForeignKey("node.id"), primary_key=True),
)
_table(
    "pause",
    _one_of("kind", "role", "service", "type", "emitter", "bot", primary_key=True),
    sa.Column("subject_id", BIG, primary_key=True, autoincrement=False),
    _required("reason", sa.Text, server_default=sa.text("''")),
    _required("paused_by", NAME, server_default=sa.text("''")),
    _required("since", MOMENT, server_default=sa.func.now()),
    sa.Column("until", MOMENT),
)
_table(
    "sending_limit",
    _one_of("kind", "emitter", "emitter_profile", primary_key=True),
    sa.Column("subject_id", BIG, primary_key=True, autoincrement=False),
    sa.Column("items_per_second", sa.Integer),
    sa.Column("bytes_per_second", sa.Integer),
    sa.Column("open_envelopes", sa.Integer),
    sa.Column("envelope_events", sa.Integer),
    sa.Column("calls_in_flight", sa.Integer),
    sa.Column("bytes_in_flight", sa.Integer),
)
_table(
    "lag_limit",
    _one_of("kind", "role", "reader", primary_key=True),
    sa.Column("subject_id", BIG, primary_key=True, autoincrement=False),
    sa.Column("envelopes", BIG),
    sa.Column("seconds", sa.Float),
    _one_of("when_behind", "alarm", "detach", "skip", server_default="alarm"),
)
_table(
    "input_descriptor",
    sa.Column("id", COUNTER, primary_key=True),
    _required("name", NAME, unique=True),
    _required("content", sa.LargeBinary),
    sa.Column("mimetype", NAME),
)
_table(
    "emission_profile",
    sa.Column("id", COUNTER, primary_key=True),
    _required("name", NAME, unique=True),
    sa.Column("person_id", sa.ForeignKey("person.id")),
    sa.Column("descriptor_id", sa.ForeignKey("input_descriptor.id")),
    _required("encoding", sa.String(64)),
)
_table(
    "cursor",
    sa.Column("role_id", sa.ForeignKey("role.id"), primary_key=True),
    _required("from_position", BIG),
    sa.Column("until_position", BIG),
    _required("position", BIG),
    _required("done", sa.LargeBinary),
    _required("handed_to", BIG),
)
_table(
    "delivery",
    sa.Column("role_id", sa.ForeignKey("role.id"), primary_key=True),
    sa.Column("envelope_id", sa.ForeignKey("envelope.id"), primary_key=True),
    _required("position", BIG),
    _one_of("state", "waiting", "retry", "held", "parked"),
    sa.Column("service_id", sa.ForeignKey("service.id")),
    _required("attempts", sa.Integer),
    _required("code", sa.String(64)),
    _required("cause", sa.Text),
    _required("changed_at", MOMENT),
    sa.Column("due_at", MOMENT),
    sa.Column("ordering_key", NAME),
    sa.Index("ix_delivery_envelope_id", "envelope_id"),
    _partial("ix_delivery_ordering_key", "role_id", "ordering_key", "position", where="ordering_key IS NOT NULL"),
    _partial("ix_delivery_parked", "role_id", "changed_at", where="state = 'parked'"),
    sa.Index("ix_delivery_role_id", "role_id", "position"),
    _partial("ix_delivery_service_id", "service_id", "changed_at", where="service_id IS NOT NULL"),
)
_table(
    "correction",
    sa.Column("id", COUNTER, primary_key=True),
    sa.Column("role_id", sa.ForeignKey("role.id")),
    _required("event_id", sa.ForeignKey("event.id")),
    _required("item_index", BIG),
    _required("before", sa.LargeBinary),
    _required("after", sa.LargeBinary),
    _required("at", MOMENT),
    _required("reason", sa.Text),
    sa.Index("ix_correction_event_id", "event_id", "role_id"),
    _partial("ix_correction_for_all", "id", where="role_id IS NULL"),
    sqlite_autoincrement=True,
)
_table(
    "parked_item",
    sa.Column("role_id", sa.ForeignKey("role.id"), primary_key=True),
    sa.Column("event_id", sa.ForeignKey("event.id"), primary_key=True, index=True),
    sa.Column("item_index", BIG, primary_key=True),
    _required("envelope_id", sa.ForeignKey("envelope.id"), index=True),
    _one_of("state", "parked", "resumed", "dropped"),
    _required("code", sa.String(64)),
    _required("cause", sa.Text),
    _required("changed_at", MOMENT),
    sa.Column("resumed_as", sa.Uuid),
    sa.Index("ix_parked_item_state", "state", "role_id", "changed_at"),
)
_table(
    "presence",
    sa.Column("role_id", sa.ForeignKey("role.id"), primary_key=True),
    _required("state", sa.String(16)),
    _required("since", MOMENT),
    sa.Column("seen_at", MOMENT),
    sa.Column("work", sa.JSON),
    sa.Column("instances", sa.JSON),
    _required("noted_at", MOMENT),
)
_table(
    "decision",
    sa.Column("id", COUNTER, primary_key=True),
    _one_of("move", "dropped", "rerouted", "first_graph"),
    _required("at", MOMENT),
    _required("reason", sa.Text),
    sa.Column("role_id", sa.ForeignKey("role.id")),
    sa.Column("to_role_id", sa.ForeignKey("role.id")),
    sa.Column("graph_id", sa.ForeignKey("graph.id")),
    _required("position", BIG),
    sa.Column("until_position", BIG),
)
_table(
    "failure",
    sa.Column("id", COUNTER, primary_key=True),
    _required("at", MOMENT),
    _required("envelope_id", sa.ForeignKey("envelope.id"), index=True),
    sa.Column("event_id", sa.Uuid),
    sa.Column("role_id", sa.ForeignKey("role.id")),
    sa.Column("node", NAME),
    _required("verb", sa.String(32)),
    _required("code", sa.String(64)),
    _required("message", sa.Text),
    sa.Column("indices", sa.JSON),
    _required("tracking", sa.String(16), index=True, server_default="unprocessed"),
    _required("fingerprint", sa.String(16), server_default=sa.text("''")),
    sa.Column("owner", NAME),
    sa.Index("ix_failure_fingerprint", "fingerprint", "id"),
    sa.Index("ix_failure_group_tracking", "fingerprint", "tracking"),
    _partial("ix_failure_owner", "fingerprint", "owner", where="owner IS NOT NULL"),
)
_table(
    "history",
    sa.Column("id", COUNTER, primary_key=True),
    _required("at", MOMENT),
    _required("subject", sa.String(32)),
    _required("subject_id", NAME),
    _required("move", sa.String(32)),
    _required("reason", sa.Text),
    sa.Column("who", NAME),
    sa.Index("ix_history_subject", "subject", "subject_id"),
)
_table(
    "emitter_profile",
    sa.Column("id", COUNTER, primary_key=True),
    _required("name", NAME, unique=True),
    _required("new_types", NAME, server_default=sa.text("''")),
    sa.Column("clients_id", BIG),
    sa.Column("keep_keys", sa.Float),
    sa.Column("removed_at", MOMENT),
)
_table(
    "emitter",
    sa.Column("id", COUNTER, primary_key=True),
    _required("login", NAME, unique=True),
    sa.Column("password_hash", NAME),
    _required("profile_id", sa.ForeignKey("emitter_profile.id")),
    _one_of("kind", "program", "node", "bot", server_default="program"),
    _required("public_keys", sa.Text, server_default=sa.text("''")),
    sa.Column("removed_at", MOMENT),
)
_table(
    "envelope",
    sa.Column("id", sa.Uuid, primary_key=True),
    _required("emitter_id", sa.ForeignKey("emitter.id")),
    _one_of("state", "open", "received", "cancelled"),
    _required("opened_at", MOMENT),
    sa.Column("closed_at", MOMENT),
    sa.Column("position", BIG, unique=True),
    sa.Column("events", sa.Integer),
    sa.Column("items", BIG),
    sa.Column("bytes", BIG),
    sa.Column("hash", sa.LargeBinary(32)),
    sa.Column("origin_id", sa.Uuid),
    sa.Column("ordering_key", NAME),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("content_hash", sa.LargeBinary(32)),
    sa.Column("headers", sa.LargeBinary),
    sa.Column("pruned_at", MOMENT),
    _partial("ix_envelope_cancelled", "closed_at", where="state = 'cancelled' AND pruned_at IS NULL"),
    _partial("ix_envelope_open", "state", "opened_at", where="state = 'open'"),
    sa.Index("ix_envelope_opened_at", "opened_at", "id"),
)
_table(
    "event",
    sa.Column("id", sa.Uuid, primary_key=True),
    _required("envelope_id", sa.ForeignKey("envelope.id")),
    _required("number", sa.Integer),
    _required("event_type_id", sa.ForeignKey("event_type.id")),
    _required("graph_id", sa.ForeignKey("graph.id")),
    _required("estimate", BIG),
    sa.Column("items", BIG),
    sa.Column("origin_id", sa.Uuid),
    sa.Column("headers", sa.LargeBinary),
    sa.Column("partition_key", NAME),
    sa.Column("data_hash", sa.LargeBinary(32)),
    sa.Column("plain_bytes", sa.Integer),
    sa.Column("data", sa.LargeBinary),
    sa.UniqueConstraint("envelope_id", "number"),
    _partial("ix_event_origin_id", "origin_id", where="origin_id IS NOT NULL"),
    _partial("ix_event_partition_key", "event_type_id", "partition_key", where="partition_key IS NOT NULL"),
)
_table(
    "segment",
    sa.Column("event_id", sa.ForeignKey("event.id"), primary_key=True),
    sa.Column("first_index", BIG, primary_key=True),
    _required("items", sa.Integer),
    _required("data", sa.LargeBinary),
    _required("hash", sa.LargeBinary(32)),
    sa.Column("indices", sa.JSON),
    sa.Column("plain_bytes", sa.Integer),
    sa.Column("store_id", sa.Integer),
    _partial("ix_segment_hash", "hash", where="store_id IS NOT NULL"),
)
_table(
    "spent_key",
    sa.Column("envelope_id", sa.Uuid, primary_key=True),
    _required("emitter_id", sa.ForeignKey("emitter.id")),
    _required("key", sa.Text),
    _required("closed_at", MOMENT),
    sa.Column("position", BIG),
    sa.Column("events", sa.Integer),
    sa.Column("items", BIG),
    sa.Column("bytes", BIG),
    sa.Column("hash", sa.LargeBinary(32)),
    sa.Column("content_hash", sa.LargeBinary(32)),
    sa.Index("ix_spent_key_emitter_id", "emitter_id", "closed_at"),
)
_table(
    "envelope_role",
    sa.Column("envelope_id", sa.ForeignKey("envelope.id"), primary_key=True),
    sa.Column("role_id", sa.ForeignKey("role.id"), primary_key=True),
    sa.Column("replay", NAME),
)
_table(
    "reply",
    sa.Column("event_id", sa.ForeignKey("event.id"), primary_key=True),
    _required("envelope_id", sa.ForeignKey("envelope.id"), index=True),
    _one_of("state", "asked", "held", "given", "failed"),
    _required("until", MOMENT),
    sa.Column("role_id", sa.ForeignKey("role.id")),
    sa.Column("data", sa.LargeBinary),
    sa.Column("code", sa.String(64)),
    sa.Column("cause", sa.Text),
    sa.Index("ix_reply_state", "state"),
)
_table(
    "head",
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True),
    _required("position", BIG),
)
_table(
    "writer",
    sa.Column("name", sa.String(64), primary_key=True),
    _required("epoch", COUNTER),
    _required("group_number", BIG),
    _required("stored_bytes", BIG, server_default="0"),
    sa.Column("holder", sa.Text),
)
_table(
    "loss",
    sa.Column("id", COUNTER, primary_key=True),
    _required("at", MOMENT),
    _required("writer", sa.String(64)),
    _required("commits", BIG),
    _required("known", BIG),
    _required("found", BIG),
    sa.Column("acknowledged_at", MOMENT),
)
_table(
    "contents",
    sa.Column("graph_id", sa.ForeignKey("graph.id"), primary_key=True),
    sa.Column("block", BIG, primary_key=True, autoincrement=False),
    _required("positions", sa.LargeBinary),
    _required("events", BIG),
    _required("items", BIG),
    _required("oldest_at", MOMENT),
    _required("newest_at", MOMENT),
    sa.Index("ix_contents_block", "block"),
)
_table(
    "contents_end",
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True),
    _required("position", BIG),
)
_table(
    "object_store",
    sa.Column("id", sa.Integer, primary_key=True),
    _required("place", sa.Text),
    _required("mark", sa.Uuid),
    sa.Column("marked_at", MOMENT),
    sa.UniqueConstraint("place"),
    sa.UniqueConstraint("mark"),
)
_table(
    "object_removal",
    sa.Column("store_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("hash", sa.LargeBinary(32), primary_key=True),
    sa.Column("removed_at", MOMENT),
    sa.Index("ix_object_removal_removed_at", "removed_at"),
)
_table(
    "person",
    sa.Column("id", COUNTER, primary_key=True),
    _required("login", NAME, unique=True),
    sa.Column("password_hash", NAME),
    sa.Column("display_name", NAME),
    sa.Column("email", NAME),
    _required("rights", sa.Text),
    _required("created_at", MOMENT),
    sa.Column("last_seen_at", MOMENT),
    sa.Column("removed_at", MOMENT),
)
_table(
    "person_session",
    sa.Column("id", COUNTER, primary_key=True),
    _required("person_id", sa.ForeignKey("person.id"), index=True),
    _required("token_hash", sa.LargeBinary(32), unique=True),
    _required("origin", NAME),
    _required("created_at", MOMENT),
    _required("used_at", MOMENT),
    _required("expires_at", MOMENT),
    sqlite_autoincrement=True,
)
_table(
    "person_token",
    sa.Column("id", COUNTER, primary_key=True),
    _required("person_id", sa.ForeignKey("person.id")),
    _required("name", NAME),
    _required("token_hash", sa.LargeBinary(32), unique=True),
    _required("rights", sa.Text),
    _required("created_at", MOMENT),
    sa.Column("used_at", MOMENT),
    sa.Column("expires_at", MOMENT),
    sa.UniqueConstraint("person_id", "name"),
)
_table(
    "reader",
    sa.Column("service_id", sa.ForeignKey("service.id"), primary_key=True, autoincrement=False),
    _required("ranges", sa.Integer, server_default=sa.text("8")),
    _required("lease", sa.Float, server_default=sa.text("10")),
    _required("batch_items", sa.Integer, server_default=sa.text("10000")),
    _required("batch_bytes", sa.Integer, server_default=sa.text("4194304")),
    _required("batch_wait", sa.Float, server_default=sa.text("0")),
    _required("keeps", sa.Boolean, server_default=sa.true()),
    sa.Column("detached_at", MOMENT),
)
_table(
    "reader_event_type",
    sa.Column("service_id", sa.ForeignKey("reader.service_id", ondelete="CASCADE"), primary_key=True),
    sa.Column("event_type_id", sa.ForeignKey("event_type.id"), primary_key=True),
    sa.Column("since", BIG),
    sa.Column("until", BIG),
)
_table(
    "reader_range",
    sa.Column("id", COUNTER, primary_key=True),
    _required("service_id", sa.ForeignKey("reader.service_id")),
    _required("first", sa.String(16)),
    _required("last", sa.String(16)),
    sa.Column("owner", sa.Uuid),
    sa.Column("role_id", sa.ForeignKey("role.id")),
    _required("counter", BIG, server_default=sa.text("0")),
    sa.Column("expires_at", MOMENT),
    _required("handed_out", sa.Boolean, server_default=sa.false()),
    _required("skipped", BIG, server_default=sa.text("0")),
    sa.Column("settled_at", MOMENT),
    sa.Column("completed_at", MOMENT),
    _required("attempts", sa.Integer, server_default=sa.text("0")),
    sa.Column("retry_at", MOMENT),
    sa.Column("batch_of", BIG),
    sa.Column("parked_at", MOMENT),
    sa.Column("code", sa.String(64)),
    sa.Column("cause", sa.Text),
    sa.Index("ix_reader_range_service_id", "service_id", "completed_at"),
)
_table(
    "reader_stretch",
    sa.Column("range_id", sa.ForeignKey("reader_range.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("first", sa.String(16), primary_key=True),
    _required("last", sa.String(16)),
    _required("position", BIG),
    _required("event", BIG),
    _required("item", BIG),
    sa.Column("to_position", BIG),
    sa.Column("to_event", BIG),
    sa.Column("to_item", BIG),
)
_table(
    "reader_move",
    sa.Column("id", COUNTER, primary_key=True),
    _required("service_id", sa.ForeignKey("reader.service_id")),
    _required("act", sa.Uuid),
    _required("at", MOMENT),
    _required("who", NAME),
    _required("kind", sa.String(16)),
    _required("reason", sa.Text, server_default=sa.text("''")),
    sa.Column("undoes", sa.Uuid),
    _required("first", sa.String(16)),
    _required("last", sa.String(16)),
    _required("from_position", BIG),
    _required("from_event", BIG),
    _required("from_item", BIG),
    _required("to_position", BIG),
    _required("to_event", BIG),
    _required("to_item", BIG),
    sa.Index("ix_reader_move_at", "at"),
    sa.Index("ix_reader_move_service_id", "service_id", "id"),
)
_table(
    "sample",
    sa.Column("step", sa.Integer, sa.CheckConstraint("step > 0", name="step"), primary_key=True, autoincrement=False),
    sa.Column("began_at", MOMENT, primary_key=True),
    _required("ended_at", MOMENT),
    _required("observed", sa.Float),
    _required("position", BIG),
    _required("envelopes", BIG),
    _required("events", BIG),
    _required("items", BIG),
    _required("lag", BIG),
    _required("lag_seconds", sa.Float),
    _required("parked", BIG),
    _required("parts", sa.JSON),
)
_table(
    "session",
    sa.Column("token_hash", sa.LargeBinary(32), primary_key=True),
    sa.Column("emitter_id", sa.ForeignKey("emitter.id")),
    sa.Column("role_id", sa.ForeignKey("role.id")),
    _required("expires_at", MOMENT),
    sa.Column("started_at", MOMENT),
    sa.Column("ticket_hash", sa.LargeBinary(32), index=True),
    sa.CheckConstraint("(emitter_id IS NULL) <> (role_id IS NULL)", name="one_owner"),
)
_table(
    "api_token",
    sa.Column("id", COUNTER, primary_key=True),
    _required("name", NAME, unique=True),
    _required("token_hash", sa.LargeBinary(32), unique=True),
    sa.Column("emitter_id", sa.ForeignKey("emitter.id")),
    sa.Column("role_id", sa.ForeignKey("role.id")),
    _required("created_at", MOMENT),
    sa.Column("used_at", MOMENT),
    sa.CheckConstraint("emitter_id IS NOT NULL OR role_id IS NOT NULL", name="owner"),
)
_table(
    "registration",
    sa.Column("role_id", sa.ForeignKey("role.id"), primary_key=True),
    sa.Column("token_hash", sa.LargeBinary(32), primary_key=True),
    _required("uri", sa.Text),
    _required("registered_at", MOMENT),
    sa.Column("place", sa.Text),
    sa.Column("metadata", sa.JSON),
    sa.Column("features", sa.JSON),
)
_table(
    "subscription",
    sa.Column("id", COUNTER, primary_key=True),
    _required("name", NAME, unique=True),
    _required("service_id", sa.ForeignKey("service.id"), unique=True),
    _required("url", sa.Text),
    _one_of("format", "json", "cloudevents", "routemaster", server_default="json"),
    _required("secret", sa.Text, server_default=sa.text("''")),
    _required("verify", sa.Boolean, server_default=sa.true()),
    sa.Column("removed_at", MOMENT),
)
_table(
    "subscription_state",
    sa.Column("service_id", sa.ForeignKey("service.id"), primary_key=True, autoincrement=False),
    _required("failures", sa.Integer, server_default=sa.text("0")),
    sa.Column("failing_since", MOMENT),
    sa.Column("failed_at", MOMENT),
    sa.Column("retry_at", MOMENT),
    sa.Column("code", sa.String(64)),
    sa.Column("error", sa.Text),
    sa.Column("ended_at", MOMENT),
)


FIRST_ROWS = {
    "configuration": {"id": 1, "version": 1},
    "head": {"id": 1, "position": 0},
    "contents_end": {"id": 1, "position": 0},
    "audit_head": {"id": 1, "number": 0, "hash": bytes(32), "cut_number": 0, "cut_hash": bytes(32)},
}

VIEWS = {
    "log_event": """
        SELECT envelope.position, event.number, event.id AS event_id, event.envelope_id, event.event_type_id,
            event_type.name AS event_type, event.graph_id, event.items,
            coalesce(event.origin_id, event.id) AS segments_id, event.partition_key, event.headers,
            emitter.login AS emitter, envelope.closed_at AS sealed_at, envelope.bytes AS envelope_bytes,
            envelope.ordering_key, envelope.idempotency_key, envelope.headers AS envelope_headers, envelope.pruned_at
        FROM envelope JOIN event ON event.envelope_id = envelope.id
            JOIN event_type ON event_type.id = event.event_type_id JOIN emitter ON emitter.id = envelope.emitter_id
        WHERE envelope.position IS NOT NULL
        """,
    # The halves have the same types and no condition of their own: so PostgreSQL looks each one up by its index.
    "log_segment": """
        SELECT event_id, first_index, items, data, hash, indices, plain_bytes, store_id FROM (
            SELECT event_id, first_index, items, data, hash, indices, plain_bytes, store_id FROM segment
            UNION ALL
            SELECT id, CAST(0 AS BIGINT), CAST(items AS INTEGER), data, data_hash, CAST(NULL AS JSON), plain_bytes,
                CAST(NULL AS INTEGER)
            FROM event
        ) AS stored WHERE data IS NOT NULL
        """,
}

OF_CONFIGURATION = (
    *("bot", "emitter", "emitter_profile", "event_type", "graph", "lag_limit", "pause", "profile_event_type", "reader"),
    *("reader_event_type", "role", "sending_limit", "service", "subscription"),
)
"""Tables whose edits raise the version of the configuration."""

OF_GRAPHS = ("edge", "emitting_service", "node")
"""Tables whose edits also make brokers forget their graphs, which are immutable but for such edits."""

UNWATCHED = ("password_hash",)
"""Columns that are read anew whenever they matter. The broker itself writes them, when somebody logs in."""

REFUSED = "rows of the audit are never changed or removed; see xbus audit cut"
OF_AUDIT = ("id", "at", "who", "origin", "action", "object", "before", "after", "reason")
"""Columns of the audit that never change. The chain sets the others once."""

EDITED = 'INSERT INTO audit ("at", who, origin, "action", object, "before", "after", reason) VALUES '
VERSIONS = "'edited_by_sql', 'configuration', 'version ' || OLD.version, 'version ' || NEW.version, ''"


def upgrade() -> None:
    TABLES.create_all(op.get_bind(), checkfirst=False)
    for name, row in FIRST_ROWS.items():
        op.bulk_insert(TABLES.tables[name], [row])
    for name, query in VIEWS.items():
        op.execute(f"CREATE VIEW {name} AS {query}")
    if op.get_bind().dialect.name == "postgresql":
        for table in ("event", "segment", "bulk_segment"):
            # PostgreSQL need not try to compress the data: the broker does, where an event type wants it.
            op.execute(f"ALTER TABLE {table} ALTER COLUMN data SET STORAGE EXTERNAL")
        _notice_edits_in_postgresql()
        _protect_audit_in_postgresql()
    else:
        _notice_edits_in_sqlite()
        _protect_audit_in_sqlite()


def _counted(table: str) -> str:
    graphs = ", graph_edits = graph_edits + 1" if table in OF_GRAPHS else ""
    return f"UPDATE configuration SET version = version + 1{graphs} WHERE NOT changing"


def _update_of(table: str) -> str:
    columns = [column.name for column in TABLES.tables[table].columns]
    watched = [name for name in columns if name not in UNWATCHED]
    return "UPDATE" if watched == columns else f"UPDATE OF {', '.join(watched)}"


def _notice_edits_in_sqlite() -> None:
    for table in (*OF_CONFIGURATION, *OF_GRAPHS):
        for event in ("INSERT", _update_of(table), "DELETE"):
            name = f"edited_{table}_{event.split()[0].lower()}"
            op.execute(f"CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN {_counted(table)}; END")
    op.execute(
        "CREATE TRIGGER service_key AFTER INSERT ON service WHEN NEW.key = '' "
        "BEGIN UPDATE service SET key = NEW.name WHERE id = NEW.id; END"
    )
    op.execute(
        "CREATE TRIGGER audit_edits AFTER UPDATE OF version ON configuration "
        f"WHEN NEW.version <> OLD.version AND NOT NEW.changing BEGIN {EDITED} "
        f"(strftime('%Y-%m-%d %H:%M:%f', 'now') || '000', '', '', {VERSIONS}); END"
    )


def _notice_edits_in_postgresql() -> None:
    for function, table in (("xbus_configuration_edited", "role"), ("xbus_graphs_edited", "node")):
        op.execute(
            f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ "
            f"BEGIN {_counted(table)}; RETURN NULL; END $$"
        )
    for table in (*OF_CONFIGURATION, *OF_GRAPHS):
        function = "xbus_graphs_edited" if table in OF_GRAPHS else "xbus_configuration_edited"
        op.execute(
            f"CREATE TRIGGER edited_{table} AFTER INSERT OR {_update_of(table)} OR DELETE OR TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
        )
    op.execute(
        "CREATE FUNCTION xbus_service_key() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN "
        "NEW.key := NEW.name; RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER service_key BEFORE INSERT ON service FOR EACH ROW WHEN (NEW.key = '') "
        "EXECUTE FUNCTION xbus_service_key()"
    )
    # As its owner: who may edit the configuration need not be allowed to write the audit.
    op.execute(
        "CREATE FUNCTION xbus_audit_edits() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
        f"SET search_path FROM CURRENT AS $$ BEGIN {EDITED} "
        f"(clock_timestamp(), session_user, coalesce(host(inet_client_addr()), ''), {VERSIONS}); RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_edits AFTER UPDATE ON configuration FOR EACH ROW "
        "WHEN (NEW.version <> OLD.version AND NOT NEW.changing) EXECUTE FUNCTION xbus_audit_edits()"
    )


def _protect_audit_in_sqlite() -> None:
    changed = " OR ".join(f'NEW."{name}" IS NOT OLD."{name}"' for name in OF_AUDIT)
    refuse = f"BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
    op.execute(
        f"CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit WHEN OLD.number IS NOT NULL OR {changed} {refuse}"
    )
    op.execute(
        "CREATE TRIGGER audit_kept BEFORE DELETE ON audit "
        f"WHEN OLD.number IS NULL OR OLD.number > (SELECT cut_number FROM audit_head) {refuse}"
    )


def _protect_audit_in_postgresql() -> None:
    changed = " OR ".join(f'NEW."{name}" IS DISTINCT FROM OLD."{name}"' for name in OF_AUDIT)
    op.execute(
        "CREATE FUNCTION xbus_audit_kept() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN "
        f"IF TG_OP = 'UPDATE' THEN IF OLD.number IS NULL AND NOT ({changed}) THEN RETURN NEW; END IF; "
        "ELSIF TG_OP = 'DELETE' THEN "
        "IF OLD.number <= (SELECT cut_number FROM audit_head) THEN RETURN OLD; END IF; END IF; "
        f"RAISE EXCEPTION '{REFUSED}'; END $$"
    )
    for name, event, each in (("kept", "UPDATE OR DELETE", "ROW"), ("not_emptied", "TRUNCATE", "STATEMENT")):
        op.execute(
            f"CREATE TRIGGER audit_{name} BEFORE {event} ON audit FOR EACH {each} EXECUTE FUNCTION xbus_audit_kept()"
        )
