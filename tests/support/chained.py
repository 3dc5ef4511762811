"""A bus whose worker's answers the bus emits as copies, which go to the store."""

from typing import Any, Literal

import sqlalchemy as sa

from tests.support.bus import add_bus
from xbus import model
from xbus.broker.journal.configuration import BusSpec, EventTypeSpec, NodeSpec, apply, make_plan, read_stored
from xbus.broker.journal.database.connection import reading, writing
from xbus.clock import SystemClock

COPIES = "copies"


def add_copies(url: str, source: str, worker: str, compress: Literal["none", "zstd"] = "none") -> None:
    """Add event type, worker service and store; what the worker makes goes to the store as copies alone.

    Args:
        source: the event type that its emitters send.
        worker: the service that transforms it.
        compress: how copies are stored.
    """
    add_bus(url, {source: {worker: ["store"], "store": []}, COPIES: {"store": []}})
    nodes = {worker: NodeSpec(worker, worker, ("copy",)), "copy": NodeSpec("copy", "", (), (COPIES,))}
    store = {"store": NodeSpec("store", "store")}
    types = {
        source: EventTypeSpec(source, False, nodes),
        COPIES: EventTypeSpec(COPIES, False, store, compress=compress),
    }
    with writing(url) as connection:
        plan = make_plan(read_stored(connection), BusSpec(event_types=types))
        assert not plan.problems, plan.problems
        apply(connection, plan, SystemClock().now())


def output_hashes(url: str) -> list[list[bytes]]:
    """The hashes of the segments of each output that is ready, in order."""
    attempt, segment = model.bulk_attempt.c, model.bulk_segment.c
    return _grouped(
        url,
        sa.select(attempt.id, segment.hash)
        .join(model.bulk_segment, segment.attempt_id == attempt.id)
        .where(attempt.state == "ready", segment["items"] > 0)
        .order_by(attempt.id, segment.part, segment.number),
    )


def copied_hashes(url: str) -> list[list[bytes]]:
    """The hashes of the segments of each copy that was sealed, in order."""
    event, segment, envelope = model.event.c, model.log_segment.c, model.envelope.c
    return _grouped(
        url,
        sa.select(event.id, segment.hash)
        .join(model.log_segment, segment.event_id == event.id)
        .join(model.event_type, model.event_type.c.id == event.event_type_id)
        .join(model.envelope, envelope.id == event.envelope_id)
        .where(model.event_type.c.name == COPIES, envelope.state == "received")
        .order_by(event.id, segment.first_index),
    )


def _grouped(url: str, statement: "sa.Select[*tuple[Any, ...]]") -> list[list[bytes]]:
    found: dict[object, list[bytes]] = {}
    with reading(url) as connection:
        for key, digest in connection.execute(statement):
            found.setdefault(key, []).append(bytes(digest))
    return sorted(found.values())
