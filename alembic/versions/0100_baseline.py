"""The tables of the first release, their first rows, and the triggers that notice edits by SQL and protect the audit.

Here a column has its type alone; ``xbus/model/`` explains it. A change before the release is made here and there. Later
changes are migrations behind this one.
"""

from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0100"
down_revision = None

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

AUTOINCREMENT = ("correction", "person_session")
"""Tables in which SQLite never gives a number again."""


def _columns(names: str, kind: Any, *checks: Any, **options: Any) -> list[sa.Column[Any]]:
    """The columns of ``names``, all of one kind: ``id!`` is part of the primary key, ``until?`` may be NULL."""
    return [
        sa.Column(name.rstrip("!?"), kind, *checks, primary_key="!" in name, nullable="?" in name, **options)
        for name in names.split()
    ]


def _foreign(names: str, *, to: str = "", on_delete: str | None = None, **options: Any) -> list[sa.Column[Any]]:
    """The columns of ``names``, each with a foreign key to the column ``to``, or to the id of the table that it names."""
    found = []
    for name in names.split():
        key = sa.ForeignKey(to or f"{name.rstrip('!?').removesuffix('_id')}.id", ondelete=on_delete)
        found += _columns(name, None, key, **options)
    return found


def _one_of(name: str, *words: str, **options: Any) -> sa.Column[Any]:
    check = sa.CheckConstraint(f"{name} IN {words}", name=name)
    return sa.Column(name, sa.String(16), check, nullable=False, **options)


def _partial(name: str, *columns: str, where: str, **options: Any) -> sa.Index:
    return sa.Index(name, *columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where), **options)


COLUMNS: dict[str, list[sa.schema.SchemaItem]] = {
    "archive_run": [
        *_columns("id!", sa.Uuid),
        *_columns("started_at lease_until ended_at?", MOMENT),
        _partial("ix_archive_run_open", "ended_at", where="ended_at IS NULL"),
    ],
    "archive_file": [
        *_columns("id!", sa.Uuid),
        *_foreign("run_id", to="archive_run.id"),
        *_foreign("event_type_id"),
        *_columns("location", sa.Text),
        _one_of("state", "writing", "kept"),
        *_columns("first_position last_position items bytes?", BIG),
        sa.Index("ix_archive_file_event_type_id_last_position", "event_type_id", "last_position"),
        sa.Index("ix_archive_file_state", "state"),
    ],
    "archived_envelope": [
        *_foreign("envelope_id!"),
        *_columns("archived_at removed_at? restored_at?", MOMENT),
        _partial("ix_archived_envelope_due", "archived_at", where="removed_at IS NULL"),
    ],
    "archived_event": [
        *_foreign("event_id!"),
        *_foreign("file_id", to="archive_file.id"),
        *_columns("segments", sa.Integer),
        *_columns("hash", sa.LargeBinary(32)),
        sa.Index("ix_archived_event_file_id", "file_id"),
    ],
    "audit": [
        *_columns("id!", COUNTER),
        *_columns("at", MOMENT),
        *_columns("who origin", NAME),
        *_columns("action", sa.String(64)),
        *_columns("object before after reason", sa.Text),
        *_columns("number?", BIG, unique=True),
        *_columns("hash?", sa.LargeBinary(32)),
        _partial("ix_audit_new", "id", where="number IS NULL"),
    ],
    "audit_head": [
        *_columns("id!", sa.Integer, sa.CheckConstraint("id = 1", name="one_row")),
        *_columns("number", BIG),
        *_columns("hash", sa.LargeBinary(32)),
        *_columns("cut_number", BIG),
        *_columns("cut_hash", sa.LargeBinary(32)),
    ],
    "bot": [
        *_columns("id!", COUNTER),
        *_columns("name", NAME, unique=True),
        *_foreign("service_id? emitter_id"),
        *_columns("call", sa.Text, server_default=sa.text("''")),
        *_columns("command", sa.JSON, server_default=sa.text("'[]'")),
        *_columns("cron", sa.Text, server_default=sa.text("''")),
        *_columns("timezone", sa.Text, server_default=sa.text("'UTC'")),
        _one_of("missed", "once", "all", "skip", server_default="once"),
        *_columns("instances", sa.Integer, server_default=sa.text("1")),
        *_columns("max_seconds", sa.Float, server_default=sa.text("3600")),
        *_columns("attempts", sa.Integer, server_default=sa.text("3")),
        *_columns("settings", sa.JSON, server_default=sa.text("'{}'")),
        *_columns("description", sa.Text, server_default=sa.text("''")),
        *_columns("removed_at?", MOMENT),
    ],
    "bot_state": [
        *_foreign("bot_id!"),
        *_columns("slots_until", MOMENT),
        *_columns("failures", sa.Integer, server_default=sa.text("0")),
        *_columns("failed_at? slowed_until?", MOMENT),
    ],
    "bot_run": [
        *_columns("id!", COUNTER),
        *_foreign("bot_id"),
        *_columns("slot?", MOMENT),
        *_columns("batch?", NAME),
        _one_of("state", "due", "running", "done", "failed"),
        *_columns("due_at", MOMENT),
        *_columns("attempts", sa.Integer),
        *_foreign("role_id?"),
        *_columns("program?", sa.Uuid),
        *_columns("ticket_hash?", sa.LargeBinary(32)),
        *_columns("lease_until? started_at? ended_at?", MOMENT),
        *_columns("code?", sa.String(64)),
        *_columns("error? log?", sa.Text),
        sa.UniqueConstraint("bot_id", "slot"),
        sa.Index("ix_bot_run_batch", "bot_id", "batch", unique=True),
        sa.Index("ix_bot_run_state", "state", "due_at"),
    ],
    "bulk_attempt": [
        *_columns("id!", sa.Uuid),
        *_foreign("event_id node_id role_id"),
        _one_of("state", "building", "ready", "failed", "abandoned"),
        *_columns("started_at lease_until", MOMENT),
        *_columns("progress", sa.Float, server_default="0"),
        *_columns("ended_at?", MOMENT),
        *_columns("code?", sa.String(64)),
        *_columns("cause?", sa.Text),
        *_columns("items? bytes?", BIG),
        *_columns("hash?", sa.LargeBinary(32)),
        sa.Index("ix_bulk_attempt_event_id", "event_id"),
        _partial("ix_bulk_attempt_live", "event_id", "node_id", where="state IN ('building', 'ready')", unique=True),
        sa.Index("ix_bulk_attempt_state", "state"),
    ],
    "bulk_segment": [
        *_foreign("attempt_id!", to="bulk_attempt.id"),
        *_columns("part! number! items", sa.Integer),
        *_columns("hash", sa.LargeBinary(32)),
        *_columns("first_index", BIG),
        *_columns("sources? data", sa.LargeBinary),
    ],
    "configuration": [
        *_columns("id!", sa.Integer, sa.CheckConstraint("id = 1", name="one_row")),
        *_columns("version", COUNTER),
        *_columns("changing", sa.Boolean, server_default=sa.false()),
        *_columns("graph_edits", sa.Integer, server_default="0"),
        *_columns("bus", sa.String(32)),
        *_columns("oldest_schema", sa.String(64), server_default="0100"),
    ],
    "event_type": [
        *_columns("id!", COUNTER),
        *_columns("name", NAME, unique=True),
        *_columns("immediate_reply", sa.Boolean, server_default=sa.false()),
        _one_of("bad_items", "envelope", "isolate", server_default="envelope"),
        *_columns("max_isolated", sa.Integer, server_default="100"),
        *_columns("secret", sa.Text, server_default=sa.text("''")),
        *_columns("keep?", sa.Float),
        *_columns("keep_bytes?", BIG),
        *_columns("keep_last_per_key?", sa.Integer),
        *_columns("archive_after?", sa.Float),
        *_columns("compress", sa.String(16), server_default="none"),
        *_columns("first_name", NAME, server_default=sa.text("''")),
        *_columns("publisher_id?", BIG),
        *_columns("is_topic", sa.Boolean, server_default=sa.false()),
        *_columns("removed_at?", MOMENT),
    ],
    "profile_event_type": [
        *_foreign("profile_id!", on_delete="CASCADE", to="emitter_profile.id"),
        *_foreign("event_type_id!"),
    ],
    "service": [
        *_columns("id!", COUNTER),
        *_columns("name", NAME, unique=True),
        *_columns("key", sa.String(300), index=True, unique=True, server_default=sa.text("''")),
        _one_of("kind", "worker", "consumer", "reader", "runner", "gateway"),
        _one_of("failures", "shared", "own", server_default="shared"),
        *_columns("attempts?", sa.Integer),
        *_columns("first_delay? longest_delay? jitter?", sa.Float),
        *_columns("removed_at?", MOMENT),
    ],
    "emitting_service": [
        *_foreign("service_id! event_type_id"),
    ],
    "role": [
        *_columns("id!", COUNTER),
        *_columns("login", NAME, unique=True),
        *_columns("password_hash?", NAME),
        *_foreign("service_id"),
        *_columns("ordered", sa.Boolean, server_default=sa.false()),
        *_columns("absent_minutes? parked_minutes?", sa.Float),
        *_columns("instances", sa.Integer, server_default=sa.text("1")),
        *_columns("standby", sa.Boolean, server_default=sa.false()),
        *_columns("public_keys", sa.Text, server_default=sa.text("''")),
        *_columns("detached_at? removed_at?", MOMENT),
    ],
    "graph": [
        *_columns("id!", COUNTER),
        *_foreign("event_type_id"),
        *_columns("number", sa.Integer, server_default=sa.text("1")),
        *_columns("created_at", MOMENT, server_default=sa.func.now()),
        sa.UniqueConstraint("event_type_id", "number"),
    ],
    "node": [
        *_columns("id!", COUNTER),
        *_foreign("graph_id", index=True),
        *_columns("name", NAME),
        *_foreign("service_id"),
        *_columns("aside", sa.Boolean, server_default=sa.false()),
        sa.UniqueConstraint("graph_id", "name"),
    ],
    "edge": [
        *_foreign("parent_id! child_id!", to="node.id"),
    ],
    "pause": [
        _one_of("kind", "role", "service", "type", "emitter", "bot", primary_key=True),
        *_columns("subject_id!", BIG, autoincrement=False),
        *_columns("reason", sa.Text, server_default=sa.text("''")),
        *_columns("paused_by", NAME, server_default=sa.text("''")),
        *_columns("since", MOMENT, server_default=sa.func.now()),
        *_columns("until?", MOMENT),
    ],
    "sending_limit": [
        _one_of("kind", "emitter", "emitter_profile", primary_key=True),
        *_columns("subject_id!", BIG, autoincrement=False),
        *_columns(
            "items_per_second? bytes_per_second? open_envelopes? envelope_events? calls_in_flight? bytes_in_flight?",
            sa.Integer,
        ),
    ],
    "lag_limit": [
        _one_of("kind", "role", "reader", primary_key=True),
        *_columns("subject_id!", BIG, autoincrement=False),
        *_columns("envelopes?", BIG),
        *_columns("seconds?", sa.Float),
        _one_of("when_behind", "alarm", "detach", "skip", server_default="alarm"),
    ],
    "input_descriptor": [
        *_columns("id!", COUNTER),
        *_columns("name", NAME, unique=True),
        *_columns("content", sa.LargeBinary),
        *_columns("mimetype?", NAME),
    ],
    "emission_profile": [
        *_columns("id!", COUNTER),
        *_columns("name", NAME, unique=True),
        *_foreign("person_id?"),
        *_foreign("descriptor_id?", to="input_descriptor.id"),
        *_columns("encoding", sa.String(64)),
    ],
    "cursor": [
        *_foreign("role_id!"),
        *_columns("from_position until_position? position", BIG),
        *_columns("done", sa.LargeBinary),
        *_columns("handed_to", BIG),
    ],
    "delivery": [
        *_foreign("role_id! envelope_id!"),
        *_columns("position", BIG),
        _one_of("state", "waiting", "retry", "held", "parked"),
        *_foreign("service_id?"),
        *_columns("attempts", sa.Integer),
        *_columns("code", sa.String(64)),
        *_columns("cause", sa.Text),
        *_columns("changed_at due_at?", MOMENT),
        *_columns("ordering_key?", NAME),
        sa.Index("ix_delivery_envelope_id", "envelope_id"),
        _partial("ix_delivery_ordering_key", "role_id", "ordering_key", "position", where="ordering_key IS NOT NULL"),
        _partial("ix_delivery_parked", "role_id", "changed_at", where="state = 'parked'"),
        sa.Index("ix_delivery_role_id", "role_id", "position"),
        _partial("ix_delivery_service_id", "service_id", "changed_at", where="service_id IS NOT NULL"),
    ],
    "correction": [
        *_columns("id!", COUNTER),
        *_foreign("role_id? event_id"),
        *_columns("item_index", BIG),
        *_columns("before after", sa.LargeBinary),
        *_columns("at", MOMENT),
        *_columns("reason", sa.Text),
        sa.Index("ix_correction_event_id", "event_id", "role_id"),
        _partial("ix_correction_for_all", "id", where="role_id IS NULL"),
    ],
    "parked_item": [
        *_foreign("role_id!"),
        *_foreign("event_id!", index=True),
        *_columns("item_index!", BIG),
        *_foreign("envelope_id", index=True),
        _one_of("state", "parked", "resumed", "dropped"),
        *_columns("code", sa.String(64)),
        *_columns("cause", sa.Text),
        *_columns("changed_at", MOMENT),
        *_columns("resumed_as?", sa.Uuid),
        sa.Index("ix_parked_item_state", "state", "role_id", "changed_at"),
    ],
    "presence": [
        *_foreign("role_id!"),
        *_columns("state", sa.String(16)),
        *_columns("since seen_at?", MOMENT),
        *_columns("work? instances?", sa.JSON),
        *_columns("noted_at", MOMENT),
    ],
    "decision": [
        *_columns("id!", COUNTER),
        _one_of("move", "dropped", "rerouted", "first_graph"),
        *_columns("at", MOMENT),
        *_columns("reason", sa.Text),
        *_foreign("role_id? to_role_id?", to="role.id"),
        *_foreign("graph_id?"),
        *_columns("position until_position?", BIG),
    ],
    "failure": [
        *_columns("id!", COUNTER),
        *_columns("at", MOMENT),
        *_foreign("envelope_id", index=True),
        *_columns("event_id?", sa.Uuid),
        *_foreign("role_id?"),
        *_columns("node?", NAME),
        *_columns("verb", sa.String(32)),
        *_columns("code", sa.String(64)),
        *_columns("message", sa.Text),
        *_columns("indices?", sa.JSON),
        *_columns("tracking", sa.String(16), index=True, server_default="unprocessed"),
        *_columns("fingerprint", sa.String(16), server_default=sa.text("''")),
        *_columns("owner?", NAME),
        sa.Index("ix_failure_fingerprint", "fingerprint", "id"),
        sa.Index("ix_failure_group_tracking", "fingerprint", "tracking"),
        _partial("ix_failure_owner", "fingerprint", "owner", where="owner IS NOT NULL"),
    ],
    "history": [
        *_columns("id!", COUNTER),
        *_columns("at", MOMENT),
        *_columns("subject", sa.String(32)),
        *_columns("subject_id", NAME),
        *_columns("move", sa.String(32)),
        *_columns("reason", sa.Text),
        *_columns("who?", NAME),
        sa.Index("ix_history_subject", "subject", "subject_id"),
    ],
    "emitter_profile": [
        *_columns("id!", COUNTER),
        *_columns("name", NAME, unique=True),
        *_columns("new_types", NAME, server_default=sa.text("''")),
        *_columns("clients_id?", BIG),
        *_columns("keep_keys?", sa.Float),
        *_columns("removed_at?", MOMENT),
    ],
    "emitter": [
        *_columns("id!", COUNTER),
        *_columns("login", NAME, unique=True),
        *_columns("password_hash?", NAME),
        *_foreign("profile_id", to="emitter_profile.id"),
        _one_of("kind", "program", "node", "bot", server_default="program"),
        *_columns("public_keys", sa.Text, server_default=sa.text("''")),
        *_columns("removed_at?", MOMENT),
    ],
    "envelope": [
        *_columns("id!", sa.Uuid),
        *_foreign("emitter_id"),
        _one_of("state", "open", "received", "cancelled"),
        *_columns("opened_at closed_at?", MOMENT),
        *_columns("position?", BIG, unique=True),
        *_columns("events?", sa.Integer),
        *_columns("items? bytes?", BIG),
        *_columns("hash?", sa.LargeBinary(32)),
        *_columns("origin_id?", sa.Uuid),
        *_columns("ordering_key?", NAME),
        *_columns("idempotency_key?", sa.Text),
        *_columns("content_hash?", sa.LargeBinary(32)),
        *_columns("headers?", sa.LargeBinary),
        *_columns("pruned_at?", MOMENT),
        _partial("ix_envelope_cancelled", "closed_at", where="state = 'cancelled' AND pruned_at IS NULL"),
        _partial("ix_envelope_open", "state", "opened_at", where="state = 'open'"),
        sa.Index("ix_envelope_opened_at", "opened_at", "id"),
    ],
    "event": [
        *_columns("id!", sa.Uuid),
        *_foreign("envelope_id"),
        *_columns("number", sa.Integer),
        *_foreign("event_type_id graph_id"),
        *_columns("estimate items?", BIG),
        *_columns("origin_id?", sa.Uuid),
        *_columns("headers?", sa.LargeBinary),
        *_columns("partition_key?", NAME),
        *_columns("data_hash?", sa.LargeBinary(32)),
        *_columns("plain_bytes?", sa.Integer),
        *_columns("data?", sa.LargeBinary),
        sa.UniqueConstraint("envelope_id", "number"),
        _partial("ix_event_origin_id", "origin_id", where="origin_id IS NOT NULL"),
        _partial("ix_event_partition_key", "event_type_id", "partition_key", where="partition_key IS NOT NULL"),
    ],
    "segment": [
        *_foreign("event_id!"),
        *_columns("first_index!", BIG),
        *_columns("items", sa.Integer),
        *_columns("data", sa.LargeBinary),
        *_columns("hash", sa.LargeBinary(32)),
        *_columns("indices?", sa.JSON),
        *_columns("plain_bytes? store_id?", sa.Integer),
        _partial("ix_segment_hash", "hash", where="store_id IS NOT NULL"),
    ],
    "spent_key": [
        *_columns("envelope_id!", sa.Uuid),
        *_foreign("emitter_id"),
        *_columns("key", sa.Text),
        *_columns("closed_at", MOMENT),
        *_columns("position?", BIG),
        *_columns("events?", sa.Integer),
        *_columns("items? bytes?", BIG),
        *_columns("hash? content_hash?", sa.LargeBinary(32)),
        sa.Index("ix_spent_key_emitter_id", "emitter_id", "closed_at"),
    ],
    "envelope_role": [
        *_foreign("envelope_id! role_id!"),
        *_columns("replay?", NAME),
    ],
    "reply": [
        *_foreign("event_id!"),
        *_foreign("envelope_id", index=True),
        _one_of("state", "asked", "held", "given", "failed"),
        *_columns("until", MOMENT),
        *_foreign("role_id?"),
        *_columns("data?", sa.LargeBinary),
        *_columns("code?", sa.String(64)),
        *_columns("cause?", sa.Text),
        sa.Index("ix_reply_state", "state"),
    ],
    "head": [
        *_columns("id!", sa.Integer, sa.CheckConstraint("id = 1", name="one_row")),
        *_columns("position", BIG),
    ],
    "writer": [
        *_columns("name!", sa.String(64)),
        *_columns("epoch", COUNTER),
        *_columns("group_number", BIG),
        *_columns("stored_bytes", BIG, server_default="0"),
        *_columns("holder?", sa.Text),
    ],
    "broker": [
        *_columns("name!", NAME),
        *_columns("front back", sa.Text),
        *_columns("version", sa.String(64)),
        *_columns("process", sa.Text),
        *_columns("settings", sa.Text, server_default="{}"),
        *_columns("looked_at", MOMENT),
    ],
    "lease": [
        *_columns("what!", sa.String(64)),
        *_columns("broker?", NAME),
        *_columns("epoch", COUNTER),
        *_columns("until", MOMENT),
        *_columns("since?", MOMENT),
        *_columns("successor?", NAME),
    ],
    "loss": [
        *_columns("id!", COUNTER),
        *_columns("at", MOMENT),
        *_columns("writer", sa.String(64)),
        *_columns("commits known found", BIG),
        *_columns("acknowledged_at?", MOMENT),
    ],
    "contents": [
        *_foreign("graph_id!"),
        *_columns("block!", BIG, autoincrement=False),
        *_columns("positions", sa.LargeBinary),
        *_columns("events items", BIG),
        *_columns("oldest_at newest_at", MOMENT),
        sa.Index("ix_contents_block", "block"),
    ],
    "contents_end": [
        *_columns("id!", sa.Integer, sa.CheckConstraint("id = 1", name="one_row")),
        *_columns("position", BIG),
    ],
    "object_store": [
        *_columns("id!", sa.Integer),
        *_columns("place", sa.Text, unique=True),
        *_columns("mark", sa.Uuid, unique=True),
        *_columns("marked_at?", MOMENT),
    ],
    "object_removal": [
        *_columns("store_id!", sa.Integer, autoincrement=False),
        *_columns("hash!", sa.LargeBinary(32)),
        *_columns("removed_at?", MOMENT),
        sa.Index("ix_object_removal_removed_at", "removed_at"),
    ],
    "person": [
        *_columns("id!", COUNTER),
        *_columns("login", NAME, unique=True),
        *_columns("password_hash? display_name? email?", NAME),
        *_columns("rights", sa.Text),
        *_columns("created_at last_seen_at? removed_at?", MOMENT),
    ],
    "person_session": [
        *_columns("id!", COUNTER),
        *_foreign("person_id", index=True),
        *_columns("token_hash", sa.LargeBinary(32), unique=True),
        *_columns("origin", NAME),
        *_columns("created_at used_at expires_at", MOMENT),
    ],
    "person_token": [
        *_columns("id!", COUNTER),
        *_foreign("person_id"),
        *_columns("name", NAME),
        *_columns("token_hash", sa.LargeBinary(32), unique=True),
        *_columns("rights", sa.Text),
        *_columns("created_at used_at? expires_at?", MOMENT),
        sa.UniqueConstraint("person_id", "name"),
    ],
    "reader": [
        *_foreign("service_id!", autoincrement=False),
        *_columns("ranges", sa.Integer, server_default=sa.text("8")),
        *_columns("lease", sa.Float, server_default=sa.text("10")),
        *_columns("batch_items", sa.Integer, server_default=sa.text("10000")),
        *_columns("batch_bytes", sa.Integer, server_default=sa.text("4194304")),
        *_columns("batch_wait", sa.Float, server_default=sa.text("0")),
        *_columns("keeps", sa.Boolean, server_default=sa.true()),
        *_columns("detached_at?", MOMENT),
    ],
    "reader_event_type": [
        *_foreign("service_id!", on_delete="CASCADE", to="reader.service_id"),
        *_foreign("event_type_id!"),
        *_columns("since? until?", BIG),
    ],
    "reader_range": [
        *_columns("id!", COUNTER),
        *_foreign("service_id", to="reader.service_id"),
        *_columns("first last", sa.String(16)),
        *_columns("owner?", sa.Uuid),
        *_foreign("role_id?"),
        *_columns("counter", BIG, server_default=sa.text("0")),
        *_columns("expires_at?", MOMENT),
        *_columns("handed_out", sa.Boolean, server_default=sa.false()),
        *_columns("skipped", BIG, server_default=sa.text("0")),
        *_columns("settled_at? completed_at?", MOMENT),
        *_columns("attempts", sa.Integer, server_default=sa.text("0")),
        *_columns("retry_at?", MOMENT),
        *_columns("batch_of?", BIG),
        *_columns("parked_at?", MOMENT),
        *_columns("code?", sa.String(64)),
        *_columns("cause?", sa.Text),
        sa.Index("ix_reader_range_service_id", "service_id", "completed_at"),
    ],
    "reader_stretch": [
        *_foreign("range_id!", on_delete="CASCADE", to="reader_range.id"),
        *_columns("first! last", sa.String(16)),
        *_columns("position event item to_position? to_event? to_item?", BIG),
    ],
    "reader_move": [
        *_columns("id!", COUNTER),
        *_foreign("service_id", to="reader.service_id"),
        *_columns("act", sa.Uuid),
        *_columns("at", MOMENT),
        *_columns("who", NAME),
        *_columns("kind", sa.String(16)),
        *_columns("reason", sa.Text, server_default=sa.text("''")),
        *_columns("undoes?", sa.Uuid),
        *_columns("first last", sa.String(16)),
        *_columns("from_position from_event from_item to_position to_event to_item", BIG),
        sa.Index("ix_reader_move_at", "at"),
        sa.Index("ix_reader_move_service_id", "service_id", "id"),
    ],
    "sample": [
        *_columns("step!", sa.Integer, sa.CheckConstraint("step > 0", name="step"), autoincrement=False),
        *_columns("began_at! ended_at", MOMENT),
        *_columns("observed", sa.Float),
        *_columns("position envelopes events items lag", BIG),
        *_columns("lag_seconds", sa.Float),
        *_columns("parked", BIG),
        *_columns("parts", sa.JSON),
    ],
    "session": [
        *_columns("token_hash!", sa.LargeBinary(32)),
        *_foreign("emitter_id? role_id?"),
        *_columns("expires_at started_at?", MOMENT),
        *_columns("ticket_hash?", sa.LargeBinary(32), index=True),
        sa.CheckConstraint("(emitter_id IS NULL) <> (role_id IS NULL)", name="one_owner"),
    ],
    "api_token": [
        *_columns("id!", COUNTER),
        *_columns("name", NAME, unique=True),
        *_columns("token_hash", sa.LargeBinary(32), unique=True),
        *_foreign("emitter_id? role_id?"),
        *_columns("created_at used_at?", MOMENT),
        sa.CheckConstraint("emitter_id IS NOT NULL OR role_id IS NOT NULL", name="owner"),
    ],
    "registration": [
        *_foreign("role_id!"),
        *_columns("token_hash!", sa.LargeBinary(32)),
        *_columns("uri", sa.Text),
        *_columns("registered_at", MOMENT),
        *_columns("place?", sa.Text),
        *_columns("metadata? features?", sa.JSON),
    ],
    "subscription": [
        *_columns("id!", COUNTER),
        *_columns("name", NAME, unique=True),
        *_foreign("service_id", unique=True),
        *_columns("url", sa.Text),
        _one_of("format", "json", "cloudevents", "routemaster", server_default="json"),
        *_columns("secret", sa.Text, server_default=sa.text("''")),
        *_columns("verify", sa.Boolean, server_default=sa.true()),
        *_columns("removed_at?", MOMENT),
    ],
    "subscription_state": [
        *_foreign("service_id!", autoincrement=False),
        *_columns("failures", sa.Integer, server_default=sa.text("0")),
        *_columns("failing_since? failed_at? retry_at?", MOMENT),
        *_columns("code?", sa.String(64)),
        *_columns("error?", sa.Text),
        *_columns("ended_at?", MOMENT),
    ],
}

for _name, _items in COLUMNS.items():
    sa.Table(_name, TABLES, *_items, sqlite_autoincrement=_name in AUTOINCREMENT)

FIRST_ROWS = {
    "configuration": {"id": 1, "version": 1, "bus": uuid4().hex},
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
                CAST(NULL AS INTEGER) FROM event
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


def _trigger(name: str, event: str, action: str) -> None:
    """A trigger of SQLite; ``action`` is a statement."""
    op.execute(f"CREATE TRIGGER {name} {event} BEGIN {action}; END")


def _function(name: str, body: str, rights: str = "") -> None:
    """A function of PostgreSQL that triggers call."""
    head = f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql {rights} SET search_path FROM CURRENT"
    op.execute(f"{head} AS $$ BEGIN {body} END $$")


def _call(function: str, name: str, event: str) -> None:
    """A trigger of PostgreSQL that calls a function."""
    op.execute(f"CREATE TRIGGER {name} {event} EXECUTE FUNCTION {function}()")


def _notice_edits_in_sqlite() -> None:
    for table in (*OF_CONFIGURATION, *OF_GRAPHS):
        for event in ("INSERT", _update_of(table), "DELETE"):
            _trigger(f"edited_{table}_{event.split()[0].lower()}", f"AFTER {event} ON {table}", _counted(table))
    named = "UPDATE service SET key = NEW.name WHERE id = NEW.id"
    _trigger("service_key", "AFTER INSERT ON service WHEN NEW.key = ''", named)
    is_edit = "WHEN NEW.version <> OLD.version AND NOT NEW.changing"
    audited = f"{EDITED} (strftime('%Y-%m-%d %H:%M:%f', 'now') || '000', '', '', {VERSIONS})"
    _trigger("audit_edits", f"AFTER UPDATE OF version ON configuration {is_edit}", audited)


def _notice_edits_in_postgresql() -> None:
    _function("xbus_configuration_edited", f"{_counted('role')}; RETURN NULL;")
    _function("xbus_graphs_edited", f"{_counted('node')}; RETURN NULL;")
    for table in (*OF_CONFIGURATION, *OF_GRAPHS):
        event = f"AFTER INSERT OR {_update_of(table)} OR DELETE OR TRUNCATE ON {table} FOR EACH STATEMENT"
        _call("xbus_graphs_edited" if table in OF_GRAPHS else "xbus_configuration_edited", f"edited_{table}", event)
    _function("xbus_service_key", "NEW.key := NEW.name; RETURN NEW;")
    _call("xbus_service_key", "service_key", "BEFORE INSERT ON service FOR EACH ROW WHEN (NEW.key = '')")
    # As its owner: who may edit the configuration need not be allowed to write the audit.
    editor = "clock_timestamp(), session_user, coalesce(host(inet_client_addr()), '')"
    _function("xbus_audit_edits", f"{EDITED} ({editor}, {VERSIONS}); RETURN NULL;", rights="SECURITY DEFINER")
    is_edit = "WHEN (NEW.version <> OLD.version AND NOT NEW.changing)"
    _call("xbus_audit_edits", "audit_edits", f"AFTER UPDATE ON configuration FOR EACH ROW {is_edit}")


def _protect_audit_in_sqlite() -> None:
    changed = " OR ".join(f'NEW."{name}" IS NOT OLD."{name}"' for name in OF_AUDIT)
    refuse = f"SELECT RAISE(ABORT, '{REFUSED}')"
    _trigger("audit_unchanged", f"BEFORE UPDATE ON audit WHEN OLD.number IS NOT NULL OR {changed}", refuse)
    kept = "OLD.number IS NULL OR OLD.number > (SELECT cut_number FROM audit_head)"
    _trigger("audit_kept", f"BEFORE DELETE ON audit WHEN {kept}", refuse)


def _protect_audit_in_postgresql() -> None:
    changed = " OR ".join(f'NEW."{name}" IS DISTINCT FROM OLD."{name}"' for name in OF_AUDIT)
    edit = f"IF OLD.number IS NULL AND NOT ({changed}) THEN RETURN NEW; END IF;"
    removal = "IF OLD.number <= (SELECT cut_number FROM audit_head) THEN RETURN OLD; END IF;"
    allowed = f"IF TG_OP = 'UPDATE' THEN {edit} ELSIF TG_OP = 'DELETE' THEN {removal} END IF;"
    _function("xbus_audit_kept", f"{allowed} RAISE EXCEPTION '{REFUSED}';")
    _call("xbus_audit_kept", "audit_kept", "BEFORE UPDATE OR DELETE ON audit FOR EACH ROW")
    _call("xbus_audit_kept", "audit_not_emptied", "BEFORE TRUNCATE ON audit FOR EACH STATEMENT")
