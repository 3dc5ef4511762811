"""Outputs of bulk workers, as the back knows them and streams them. Each function is one short read."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.bulk.totals import Totals, read_totals
from xbus.broker.journal.database.paging import first_page
from xbus.states import AttemptState

__all__ = ["OutputSegment", "StoredAttempt", "Totals", "check_output", "read_attempt", "read_attempts", "read_output"]

Place: TypeAlias = tuple[int, int]
"""Part and number of a segment."""

BEGINNING: Place = (-1, -1)
"""Before the first segment."""


@dataclass(frozen=True, slots=True)
class StoredAttempt:
    """A row of ``model.bulk_attempt``."""

    attempt_id: UUID
    event_id: UUID
    node_id: int
    role_id: int
    state: AttemptState
    started_at: datetime
    lease_until: datetime
    progress: float
    ended_at: datetime | None
    code: str | None
    cause: str | None
    items: int | None
    data_bytes: int | None
    hash: bytes | None


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


def read_attempt(connection: sa.Connection, attempt_id: UUID) -> StoredAttempt | None:
    """Read one attempt; None if no attempt has this id."""
    row = connection.execute(_ATTEMPTS.where(model.bulk_attempt.c.id == attempt_id)).one_or_none()
    return None if row is None else _attempt(row)


def read_attempts(
    connection: sa.Connection,
    *,
    event_ids: Collection[UUID] | None = None,
    states: Collection[AttemptState] | None = None,
) -> list[StoredAttempt]:
    """Read attempts, the oldest first.

    Args:
        event_ids: only those for these events.
        states: only those in these states.
    """
    statement = _ATTEMPTS.order_by(model.bulk_attempt.c.started_at, model.bulk_attempt.c.id)
    if event_ids is not None:
        statement = statement.where(model.bulk_attempt.c.event_id.in_(event_ids))
    if states is not None:
        statement = statement.where(model.bulk_attempt.c.state.in_([state.value for state in states]))
    return [_attempt(row) for row in connection.execute(statement)]


_ATTEMPTS = sa.select(model.bulk_attempt)


def _attempt(row: Any) -> StoredAttempt:
    found = row._mapping
    return StoredAttempt(
        found["id"],
        found["event_id"],
        found["node_id"],
        found["role_id"],
        AttemptState(found["state"]),
        found["started_at"],
        found["lease_until"],
        found["progress"],
        found["ended_at"],
        found["code"],
        found["cause"],
        found["items"],
        found["bytes"],
        None if found["hash"] is None else bytes(found["hash"]),
    )


def check_output(connection: sa.Connection, attempt_id: UUID) -> Totals:
    """Sum up the content of an output, for comparison with its worker's report.

    ``EndAttempt`` with state ready compares it once more, with all parts shut, and fails with ``output_mismatch`` where
    a part was replaced meanwhile.
    """
    return read_totals(connection, attempt_id)


def read_output(
    connection: sa.Connection, attempt_id: UUID, after: Place = BEGINNING, max_bytes: int = 1024 * 1024
) -> list[OutputSegment]:
    """Read the next segments of an output, in order of part and number.

    Args:
        after: the place of the last one that is known.
        max_bytes: segments are added until their data would exceed this; the first one always comes.

    Returns:
        Segments that follow each other; none at the output's end.
    """
    wanted = {"of_attempt": attempt_id, "after_part": after[0], "after_number": after[1]}
    page = first_page(connection.execute(_SIZES, wanted).all(), max_bytes)
    if not page:
        return []
    last_part, last_number, _ = page[-1]
    rows = connection.execute(_SEGMENTS, {**wanted, "last_part": last_part, "last_number": last_number})
    return [
        OutputSegment(part, number, items, bytes(data), first_index, None if sources is None else bytes(sources))
        for part, number, items, data, first_index, sources in rows
    ]


_place = sa.tuple_(model.bulk_segment.c.part, model.bulk_segment.c.number)
_INTEGER = sa.Integer()
_AFTER = sa.and_(
    model.bulk_segment.c.attempt_id == sa.bindparam("of_attempt"),
    _place > sa.tuple_(sa.bindparam("after_part", type_=_INTEGER), sa.bindparam("after_number", type_=_INTEGER)),
)
_SIZES = (
    sa.select(model.bulk_segment.c.part, model.bulk_segment.c.number, sa.func.length(model.bulk_segment.c.data))
    .where(_AFTER)
    .order_by(model.bulk_segment.c.part, model.bulk_segment.c.number)
    .limit(256)
)
_SEGMENTS = (
    sa.select(
        model.bulk_segment.c.part,
        model.bulk_segment.c.number,
        model.bulk_segment.c["items"],
        model.bulk_segment.c.data,
        model.bulk_segment.c.first_index,
        model.bulk_segment.c.sources,
    )
    .where(_AFTER)
    .where(_place <= sa.tuple_(sa.bindparam("last_part", type_=_INTEGER), sa.bindparam("last_number", type_=_INTEGER)))
    .order_by(model.bulk_segment.c.part, model.bulk_segment.c.number)
)
"""Made once, as all of an output is read by them."""
