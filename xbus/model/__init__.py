"""The tables of the bus, every column explained; no behaviour."""

from xbus.model.base import metadata
from xbus.model.configuration import (
    configuration,
    edge,
    emitter,
    emitter_profile,
    event_type,
    graph,
    node,
    profile_event_type,
    role,
    service,
)
from xbus.model.delivery import cursor, delivery, failure, history
from xbus.model.journal import envelope, event, head, segment, writer
from xbus.model.session import registration, session

__all__ = [
    "configuration",
    "cursor",
    "delivery",
    "edge",
    "emitter",
    "emitter_profile",
    "envelope",
    "event",
    "event_type",
    "failure",
    "graph",
    "head",
    "history",
    "metadata",
    "node",
    "profile_event_type",
    "registration",
    "role",
    "segment",
    "service",
    "session",
    "writer",
]
