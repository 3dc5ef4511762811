"""Outputs of bulk workers as they are stored: read page by page, and added up. Each function is one short read."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.bulk.cleaning import ARCHIVED
from xbus.broker.journal.database.compression import verified
from xbus.broker.journal.database.paging import first_page
from xbus.broker.journal.database.rows import NamedRow, columns_for, value_of
from xbus.broker.journal.log.deliveries import OUTPUT_NOT_READY, SELECT_DELIVERIES, as_delivery
from xbus.broker.journal.writes import DeliveryRow
from xbus.broker.journal.writes.bulk import OutputPage, Place
from xbus.states import AttemptState, DeliveryState

BEGINNING: Place = (-1, -1)
"""Before the first segment."""

MISMATCH = "output_mismatch"
"""The code of the error of an output that is not what its worker says it is."""


@dataclass(frozen=True, slots=True)
class OutputSegment:
    """A row of ``model.bulk_segment``."""

    part: int
    number: int
    items: int
    data: bytes
    first_index: int
    sources: bytes | None

    @property
    def place(self) -> Place:
        """Its place in its output."""
        return (self.part, self.number)


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of an output's segments.

    Args:
        hash: as in ``model.bulk_attempt``.
    """

    items: int
    data_bytes: int
    hash: bytes


def read_totals(connection: sa.Connection, attempt_id: UUID) -> Totals:
    """Sum up the content of an output, for comparison with its worker's report.

    ``EndAttempt`` with state ready compares it once more, with all parts shut, and fails with ``MISMATCH`` where a part
    was replaced meanwhile.
    """
    items = data_bytes = 0
    whole = hashlib.sha256()
    for count, size, digest in connection.execute(_HASHES, {"attempt_id": attempt_id}):
        items += count
        data_bytes += size
        whole.update(digest)
    return Totals(items, data_bytes, whole.digest())


def read_output_items(connection: sa.Connection, attempt_id: UUID) -> int | None:
    """Read how many items an output has as its worker made it; None where it is not ready, or gone."""
    return connection.execute(_ITEMS, {"attempt_id": attempt_id}).scalar_one_or_none()


def read_output(
    connection: sa.Connection,
    attempt_id: UUID,
    after: Place = BEGINNING,
    max_bytes: int = 1024 * 1024,
    *,
    verify: Callable[[bytes, bytes], bytes] = verified,
) -> list[OutputSegment]:
    """Read the next segments of an output, in order of part and number.

    Args:
        after: the place of the last one that is known.
        max_bytes: segments are added until their data would exceed this; the first one always comes.
        verify: gives the data if it has its hash; an examination gives all, and says what is wrong.

    Returns:
        Segments that follow each other; none at the output's end.

    Raises:
        JournalError: one is damaged (``segment_damaged``).
    """
    wanted = {"of_attempt": attempt_id, "after_part": after[0], "after_number": after[1]}
    page = first_page(connection.execute(_SIZES, wanted).all(), max_bytes)
    if not page:
        return []
    last_part, last_number, _ = page[-1]
    rows = connection.execute(_SEGMENTS, {**wanted, "last_part": last_part, "last_number": last_number})
    return [
        OutputSegment(
            *(part, number, items, verify(bytes(data), digest)),
            *(first_index, None if sources is None else bytes(sources)),
        )
        for part, number, items, data, digest, first_index, sources in rows
    ]


def read_output_page(
    connection: sa.Connection, attempt_id: UUID, after: Place = BEGINNING, max_bytes: int = 1024 * 1024
) -> OutputPage | None:
    """Read where the next segments of an output lie, and what they hold; their data stays where it is.

    Args:
        after: the place of the last one that is known.
        max_bytes: segments are added until their data would exceed this; the first one always comes.

    Returns:
        None at the output's end.
    """
    wanted = {"of_attempt": attempt_id, "after_part": after[0], "after_number": after[1]}
    page = first_page(connection.execute(_COUNTED_SIZES, wanted).all(), max_bytes)
    if not page:
        return None
    last_part, last_number, _, _ = page[-1]
    items, data_bytes = sum(row[2] for row in page), sum(row[3] for row in page)
    return OutputPage(attempt_id, after, (last_part, last_number), len(page), items, data_bytes)


_SEGMENT = model.bulk_segment.c
_place = sa.tuple_(_SEGMENT.part, _SEGMENT.number)
_SIZE = sa.func.length(_SEGMENT.data)
_INTEGER = sa.Integer()
_AFTER = sa.and_(
    _SEGMENT.attempt_id == sa.bindparam("of_attempt"),
    _place > sa.tuple_(sa.bindparam("after_part", type_=_INTEGER), sa.bindparam("after_number", type_=_INTEGER)),
)
_IN_ORDER = (_SEGMENT.part, _SEGMENT.number)
_HASHES = (
    sa.select(_SEGMENT["items"], _SIZE, _SEGMENT.hash)
    .where(_SEGMENT.attempt_id == sa.bindparam("attempt_id"))
    .order_by(*_IN_ORDER)
)
_ITEMS = sa.select(model.bulk_attempt.c["items"]).where(model.bulk_attempt.c.id == sa.bindparam("attempt_id"))
_SIZES = sa.select(_SEGMENT.part, _SEGMENT.number, _SIZE).where(_AFTER).order_by(*_IN_ORDER).limit(256)
_COUNTED_SIZES = (
    sa.select(_SEGMENT.part, _SEGMENT.number, _SEGMENT["items"], _SIZE)
    .where(_AFTER, _SEGMENT["items"] > 0)
    .order_by(*_IN_ORDER)
    .limit(256)
)
_SEGMENTS = (
    sa.select(*(_SEGMENT[name] for name in ("part", "number", "items", "data", "hash", "first_index", "sources")))
    .where(_AFTER)
    .where(_place <= sa.tuple_(sa.bindparam("last_part", type_=_INTEGER), sa.bindparam("last_number", type_=_INTEGER)))
    .order_by(*_IN_ORDER)
)
"""Made once, as all of an output is read by them."""


# -- status ------------------------------------------------------------------------------------------------------------
# The outputs that count at the start of the back, and how far each has come.
#
# Each function is one short read.


@dataclass(frozen=True, slots=True)
class LiveAttempt:
    """An attempt that counts: in the making, or ready.

    Args:
        graph_id: the version of the graph with the node.
        node: the node's name.
        role_id: the worker role that makes it.
        event_items: the number of the event's items.
        items: the number of its own items; None unless it is ready.
    """

    attempt_id: UUID
    event_id: UUID
    envelope_id: UUID
    graph_id: int
    node: str
    role_id: int
    state: AttemptState
    started_at: datetime
    lease_until: datetime
    progress: float
    event_items: int
    items: int | None


def read_live_attempts(connection: sa.Connection) -> list[LiveAttempt]:
    """Read all attempts that count, the oldest first."""
    attempt = model.bulk_attempt.c
    statement = (
        sa.select(
            *columns_for(LiveAttempt, model.bulk_attempt),
            *(attempt.id.label("attempt_id"), model.event.c.envelope_id, model.event.c["items"].label("event_items")),
            *(model.node.c.graph_id, model.node.c.name.label("node")),
        )
        .join(model.node, model.node.c.id == attempt.node_id)
        .join(model.event, model.event.c.id == attempt.event_id)
        .where(attempt.state.in_((AttemptState.BUILDING, AttemptState.READY)))
        .order_by(attempt.started_at)
    )
    return [value_of(LiveAttempt, row, state=AttemptState(row.state)) for row in connection.execute(statement)]


def read_node_id(connection: sa.Connection, graph_id: int, name: str) -> int:
    """Read the id of a node of a version of a graph."""
    statement = sa.select(model.node.c.id).where(model.node.c.graph_id == graph_id, model.node.c.name == name)
    node_id: int = connection.execute(statement).scalar_one()
    return node_id


def read_awaiting(connection: sa.Connection) -> Sequence[DeliveryRow]:
    """Read the deliveries that wait for outputs, lowest position first."""
    delivery = model.delivery.c
    statement = SELECT_DELIVERIES.where(
        delivery.state == DeliveryState.WAITING, delivery.code == OUTPUT_NOT_READY
    ).order_by(delivery.position)
    return [as_delivery(row) for row in connection.execute(statement)]


# -- summaries ---------------------------------------------------------------------------------------------------------
# Summaries of the outputs that bulk workers made, or tried to make, of an envelope's events.


@dataclass(frozen=True, slots=True)
class OutputSummary:
    """An attempt at the output of a node for an event.

    Args:
        number: of the event in its envelope.
        state: of ``AttemptState``, or ``archived`` where it was ready until its event was archived.
        progress: how far it is, from 0 to 1, as its worker said last; 1 where it is or was ready.
        items: None where it never was ready, and so is ``bytes``.
        code: why it came to nothing, and so is ``cause``; None where it did not.
    """

    attempt_id: UUID
    number: int
    node: str
    role: str
    state: str
    progress: float
    items: int | None
    bytes: int | None
    started_at: datetime
    ended_at: datetime | None
    code: str | None
    cause: str | None


def list_outputs(connection: sa.Connection, envelope_id: UUID, limit: int) -> list[OutputSummary]:
    """List the attempts for an envelope's events, by event and node, the newest of each first."""
    attempt = model.bulk_attempt.c
    statement = (
        sa.select(model.bulk_attempt, model.event.c.number, model.node.c.name, model.role.c.login)
        .join(model.event, model.event.c.id == attempt.event_id)
        .join(model.node, model.node.c.id == attempt.node_id)
        .join(model.role, model.role.c.id == attempt.role_id)
        .where(model.event.c.envelope_id == envelope_id)
        .order_by(model.event.c.number, attempt.node_id, attempt.started_at.desc())
        .limit(limit)
    )
    return [
        value_of(
            OutputSummary,
            row,
            attempt_id=row.id,
            node=row.name,
            role=row.login,
            state=_state(row),
            progress=row.progress if row._mapping["items"] is None else 1.0,
        )
        for row in connection.execute(statement)
    ]


def _state(row: NamedRow) -> str:
    """Name the state for people: they need not search for the fault of an abandoned attempt."""
    state: str = row.state
    return ARCHIVED if row._mapping["items"] is not None and row.code == ARCHIVED else state
