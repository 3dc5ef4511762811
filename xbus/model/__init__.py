"""The tables of the bus, every column explained; no behaviour."""

from xbus.model.archive import archive_file, archive_run, archived_envelope, archived_event
from xbus.model.audit import audit, audit_head
from xbus.model.base import metadata
from xbus.model.bots import bot, bot_run, bot_state
from xbus.model.bulk import bulk_attempt, bulk_segment
from xbus.model.configuration import (
    configuration,
    edge,
    emission_profile,
    emitting_service,
    event_type,
    graph,
    input_descriptor,
    lag_limit,
    node,
    pause,
    profile_event_type,
    role,
    sending_limit,
    service,
)
from xbus.model.delivery import correction, cursor, decision, delivery, failure, history, parked_item, presence
from xbus.model.emitter import emitter, emitter_profile
from xbus.model.journal import (
    ENVELOPE_HEAD,
    EVENT_TAGS,
    contents,
    contents_end,
    envelope,
    envelope_role,
    event,
    head,
    loss,
    reply,
    segment,
    writer,
)
from xbus.model.objects import object_removal, object_store
from xbus.model.people import person, person_session, person_token
from xbus.model.reader import reader, reader_event_type, reader_move, reader_range, reader_stretch
from xbus.model.sample import sample
from xbus.model.session import api_token, registration, session
from xbus.model.subscription import subscription, subscription_state

__all__ = [
    "ENVELOPE_HEAD",
    "EVENT_TAGS",
    "api_token",
    "archive_file",
    "archive_run",
    "archived_envelope",
    "archived_event",
    "audit",
    "audit_head",
    "bot",
    "bot_run",
    "bot_state",
    "bulk_attempt",
    "bulk_segment",
    "configuration",
    "contents",
    "contents_end",
    "correction",
    "cursor",
    "decision",
    "delivery",
    "edge",
    "emission_profile",
    "emitter",
    "emitter_profile",
    "emitting_service",
    "envelope",
    "envelope_role",
    "event",
    "event_type",
    "failure",
    "graph",
    "head",
    "history",
    "input_descriptor",
    "lag_limit",
    "loss",
    "metadata",
    "node",
    "object_removal",
    "object_store",
    "parked_item",
    "pause",
    "person",
    "person_session",
    "person_token",
    "presence",
    "profile_event_type",
    "reader",
    "reader_event_type",
    "reader_move",
    "reader_range",
    "reader_stretch",
    "registration",
    "reply",
    "role",
    "sample",
    "segment",
    "sending_limit",
    "service",
    "session",
    "subscription",
    "subscription_state",
    "writer",
]
