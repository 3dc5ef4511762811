"""Removal of what bulk workers wrote and nobody needs any more, step by step.

An attempt that counts is given up first: then no part of it can be written any more, and nobody takes what is left for
the whole. Its segments go in steps that hold up nobody for long, and its row last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.bulk import side_files
from xbus.states import AttemptState

STEP_BYTES = 4 * 1024 * 1024
"""One step removes segments until they hold this much."""

SEGMENT_ROWS = 500
ATTEMPT_ROWS = 100

NOT_NEEDED = "not_needed"
"""The code of attempts that were abandoned because nobody needs the event any more."""

ARCHIVED = "archived"
"""The code of attempts that were abandoned because their input is in the archive."""

_CAUSES = {
    NOT_NEEDED: "nobody needs the event any more",
    ARCHIVED: "its event was archived: it is made anew when somebody needs it",
}

LOST = "output_lost"
"""The code of attempts that were abandoned because a part of their output is missing."""


@dataclass(frozen=True, slots=True)
class StrayFiles:
    """Side files that nobody waits for any more."""

    folder: Any
    attempt_ids: tuple[UUID, ...]

    def remove(self) -> int:
        """Remove them, and give the number of attempts. Rows that can't be removed now stay for the next time."""
        for attempt_id in self.attempt_ids:
            side_files.remove(self.folder, attempt_id)
        return len(self.attempt_ids)


def find_stray_files(connection: sa.Connection) -> StrayFiles:
    """Find the side files of attempts that are not building: taken over, or useless. PostgreSQL has none."""
    folder = side_files.folder_of(connection.engine.url)
    # Read the folder first: the row of an attempt exists before its files do.
    found = [] if folder is None else side_files.attempts_with_files(folder)
    if not found:
        return StrayFiles(folder, ())
    attempt = model.bulk_attempt.c
    building = sa.select(attempt.id).where(attempt.state == AttemptState.BUILDING.value)
    wanted = set(connection.execute(building).scalars())
    return StrayFiles(folder, tuple(attempt_id for attempt_id in found if attempt_id not in wanted))


def clean_attempts(connection: sa.Connection, until: datetime, step_bytes: int = STEP_BYTES) -> bool:
    """Remove some leftovers of attempts that failed.

    Args:
        connection: in a transaction of its own, which this keeps short.
        until: the row of an attempt that ended later stays, for those who want to know why.
        step_bytes: segments are removed until they hold this much.

    Returns:
        Whether there is more.
    """
    attempt = model.bulk_attempt.c
    came_to_nothing = attempt.state.in_([AttemptState.FAILED.value, AttemptState.ABANDONED.value])
    with_segments = sa.select(attempt.id).where(came_to_nothing, _HAS_SEGMENTS).limit(1)
    attempt_id = connection.execute(with_segments).scalar_one_or_none()
    if attempt_id is not None:
        _remove_segments(connection, attempt_id, step_bytes)
        return True
    old = sa.select(attempt.id).where(came_to_nothing, attempt.ended_at < until).limit(ATTEMPT_ROWS)
    ids = list(connection.execute(old).scalars())
    if ids:
        connection.execute(sa.delete(model.bulk_attempt).where(attempt.id.in_(ids)))
    return bool(ids)


def discard_outputs(
    connection: sa.Connection, writer: str, envelope_ids: Sequence[UUID], now: datetime, code: str = NOT_NEEDED
) -> int:
    """Give up all attempts for the events of some envelopes: their segments count as gone at once.

    Args:
        writer: the bytes are accounted to its row of ``model.writer``.
        code: why, ``NOT_NEEDED`` or ``ARCHIVED``.

    Returns:
        How many bytes counted until now.
    """
    attempt = model.bulk_attempt.c
    counting = sa.select(attempt.id, attempt.bytes).where(
        attempt.event_id.in_(_events_of(envelope_ids)),
        attempt.state.in_([AttemptState.BUILDING.value, AttemptState.READY.value]),
    )
    found = connection.execute(counting).all()
    if not found:
        return 0
    total = sum(row.bytes or 0 for row in found)
    connection.execute(
        sa.update(model.bulk_attempt)
        .where(attempt.id.in_([row.id for row in found]))
        .values(state=AttemptState.ABANDONED.value, ended_at=now, code=code, cause=_CAUSES[code])
    )
    _account_removed(connection, writer, total)
    return total


def give_up_lost(connection: sa.Connection, writer: str, attempt_id: UUID, cause: str, now: datetime) -> None:
    """Give up an attempt that is ready and lacks some of its segments: another one may be begun. Safe to repeat.

    Args:
        writer: as of ``discard_outputs``.
    """
    attempt = model.bulk_attempt.c
    is_ready = sa.and_(attempt.id == attempt_id, attempt.state == AttemptState.READY.value)
    data_bytes = connection.execute(sa.select(attempt.bytes).where(is_ready)).scalar()
    given_up = {"state": AttemptState.ABANDONED.value, "ended_at": now, "code": LOST, "cause": cause}
    if connection.execute(sa.update(model.bulk_attempt).where(is_ready).values(**given_up)).rowcount:
        _account_removed(connection, writer, data_bytes or 0)


def _account_removed(connection: sa.Connection, writer: str, data_bytes: int) -> None:
    account = model.writer.c
    connection.execute(
        sa.update(model.writer).where(account.name == writer).values(stored_bytes=account.stored_bytes - data_bytes)
    )


def remove_outputs(connection: sa.Connection, envelope_id: UUID, step_bytes: int = STEP_BYTES) -> bool:
    """Remove some outputs of an envelope's events, all of whose attempts were abandoned.

    Args:
        step_bytes: segments are removed until they hold this much.

    Returns:
        Whether there is more.
    """
    attempt = model.bulk_attempt.c
    of_envelope = attempt.event_id.in_(_events_of([envelope_id]))
    with_segments = sa.select(attempt.id).where(of_envelope, _HAS_SEGMENTS).limit(1)
    attempt_id = connection.execute(with_segments).scalar_one_or_none()
    if attempt_id is not None:
        _remove_segments(connection, attempt_id, step_bytes)
        return True
    connection.execute(sa.delete(model.bulk_attempt).where(of_envelope))
    return False


def with_outputs(connection: sa.Connection, envelope_ids: Sequence[UUID]) -> set[UUID]:
    """Select the envelopes whose events have attempts."""
    event = model.event.c
    statement = (
        sa.select(event.envelope_id)
        .join(model.bulk_attempt, model.bulk_attempt.c.event_id == event.id)
        .where(event.envelope_id.in_(envelope_ids))
    )
    return set(connection.execute(statement).scalars())


_HAS_SEGMENTS = sa.exists().where(model.bulk_segment.c.attempt_id == model.bulk_attempt.c.id)


def _events_of(envelope_ids: Sequence[UUID]) -> sa.Select[UUID]:
    return sa.select(model.event.c.id).where(model.event.c.envelope_id.in_(envelope_ids))


def _remove_segments(connection: sa.Connection, attempt_id: UUID, step_bytes: int) -> None:
    """Remove the next segments of an attempt."""
    segment = model.bulk_segment.c
    sizes = connection.execute(
        sa.select(segment.part, segment.number, sa.func.length(segment.data).label("size"))
        .where(segment.attempt_id == attempt_id)
        .order_by(segment.part, segment.number)
        .limit(SEGMENT_ROWS)
    ).all()
    total = 0
    last = sizes[0]
    for row in sizes:
        last = row
        total += row.size
        if total >= step_bytes:
            break
    upto = sa.tuple_(segment.part, segment.number) <= sa.tuple_(sa.literal(last.part), sa.literal(last.number))
    connection.execute(sa.delete(model.bulk_segment).where(segment.attempt_id == attempt_id, upto))
