"""Parked batches: a subscriber did not take them, or their items are damaged. People resume or drop them.

A parked batch is a range of its own beside the ring. Nobody reads it until a person resumes it; it ends when its batch
is settled. So leases, counters and bounds are those of all ranges, and retention keeps what is in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import RepairDecision, act_here, note_acts
from xbus.broker.journal.log.slices.items import read_heads
from xbus.broker.journal.log.slices.values import EventHead, Place
from xbus.broker.journal.readers.people import have_broker_notice
from xbus.broker.journal.readers.ranges import (
    BATCH_DIGITS,
    BATCH_PREFIX,
    ReaderRange,
    with_stretches,
    written_hash,
)
from xbus.broker.journal.readers.steps import ActNote, LeaseOf, complete, note_moves, owned_range, write_range
from xbus.broker.journal.readers.subscriptions import check_settings
from xbus.errors import Refused
from xbus.states import RANGE_MOVES, RangeState, check_move

_RANGE = model.reader_range.c


@dataclass(frozen=True, slots=True)
class BatchFailure:
    """The last failure of a batch.

    Args:
        code: for programs.
        cause: for people.
        settings: the id of the settings that the subscriber was called with; None where they are not known.
    """

    code: str
    cause: str
    settings: str | None = None


@dataclass(frozen=True, slots=True)
class ParkedBatch:
    """A batch that is parked.

    Args:
        id: of the batch; subscribers have seen it as ``webhook-id``.
        subscription: the name of the subscription; None for a reader of programs or of a bot.
        reader: the name of the reader.
        range: that is parked, with the bounds of the batch.
        attempts: how often the subscriber was called with it.
        code: of its last failure, for programs.
        cause: the same for people.
        since: the moment when it was parked.
    """

    id: str
    subscription: str | None
    reader: str
    range: ReaderRange
    attempts: int
    code: str
    cause: str
    since: datetime

    @property
    def whose(self) -> str:
        """The name by which people know who lacks it: that of the subscription, or of the reader."""
        return self.reader if self.subscription is None else self.subscription


def postpone(
    connection: sa.Connection, lease: LeaseOf, attempts: int, failure: BatchFailure, retry_at: datetime
) -> ReaderRange:
    """Have the batch that is out called again later.

    Raises:
        Refused: the program has lost the range (``lease_lost``), or called with settings that are no longer in force
            (``settings_changed``).
    """
    before = owned_range(connection, lease)
    check_settings(connection, before.service_id, failure.settings)
    later = replace(before, attempts=attempts, retry_at=retry_at)
    values = {"attempts": attempts, "retry_at": retry_at}
    connection.execute(sa.update(model.reader_range).where(_RANGE.id == lease.range_id).values(values))
    return later


def park(
    connection: sa.Connection, lease: LeaseOf, attempts: int, failure: BatchFailure, note: ActNote
) -> ReaderRange | None:
    """Park the batch that is out; its range goes on behind it.

    Returns:
        The range behind the batch; None for a batch that was resumed, which is parked as it was.

    Raises:
        Refused: as of :func:`postpone`.
    """
    before = owned_range(connection, lease)
    check_settings(connection, before.service_id, failure.settings)
    parked = {"attempts": attempts, "parked_at": note.at, "code": failure.code, "cause": failure.cause}
    if before.batch_of is not None:
        again = replace(before, owner=None, counter=before.counter + 1, attempts=attempts, retry_at=None)
        write_range(connection, again, **parked, expires_at=None)
        return None
    span = {"first": written_hash(before.first), "last": written_hash(before.last)}
    made = sa.insert(model.reader_range).values(service_id=before.service_id, batch_of=before.id, **span)
    range_id: int = connection.execute(made.returning(_RANGE.id)).scalar_one()
    beside = replace(
        before, id=range_id, owner=None, counter=0, stretches=before.parked(), attempts=attempts, retry_at=None
    )
    write_range(connection, beside, **parked)
    after = before.settled(before.batch_end)
    note_moves(connection, note, before, after)
    return write_range(connection, after)


def park_next(
    connection: sa.Connection, lease: LeaseOf, to: Place, failure: BatchFailure, note: ActNote
) -> ReaderRange | None:
    """Park the next items of a range up to a place; the range goes on there. No batch of it may be out.

    Raises:
        Refused: the program has lost the range (``lease_lost``).
    """
    write_range(connection, owned_range(connection, lease).with_batch(to))
    return park(connection, lease, 0, failure, note)


def list_parked_batches(
    connection: sa.Connection, subscription: str | None = None, limit: int | None = None, *, reader: str | None = None
) -> list[ParkedBatch]:
    """List the batches that are parked, the newest first.

    Args:
        subscription: only those of the one of this name; None for all.
        limit: the most; None for all.
        reader: only those of the reader of this name; None for all.
    """
    service = model.service.c
    chosen = (
        sa.select(model.reader_range)
        .join(model.service, service.id == _RANGE.service_id)
        .outerjoin(
            model.subscription,
            sa.and_(model.subscription.c.service_id == service.id, model.subscription.c.removed_at.is_(None)),
        )
        .where(_RANGE.parked_at.is_not(None), service.removed_at.is_(None))
        .order_by(_RANGE.parked_at.desc(), _RANGE.id.desc())
    )
    if subscription is not None:
        chosen = chosen.where(model.subscription.c.name == subscription)
    if reader is not None:
        chosen = chosen.where(service.name == reader)
    if limit is not None:
        chosen = chosen.limit(limit)
    facts = {
        row.id: row
        for row in connection.execute(
            chosen.with_only_columns(
                _RANGE.id, _RANGE.code, _RANGE.cause, _RANGE.parked_at, model.subscription.c.name, service.key,
                service.name.label("reader"),
            )
        )
    }  # fmt: skip
    found = []
    for each in with_stretches(connection, chosen):
        row = facts[each.id]
        failure = (each.attempts, row.code or "", row.cause or "", row.parked_at)
        found.append(ParkedBatch(each.batch_id(row.key), row.name, row.reader, each, *failure))
    return found


def find_parked_batch(connection: sa.Connection, digits: str) -> ParkedBatch:
    """Find the parked batch whose id begins with some characters, with or without the prefix.

    Raises:
        Refused: none begins so (``batch_not_parked``), or several do (``ambiguous_id``).
    """
    wanted = digits.removeprefix(BATCH_PREFIX).lower()
    found = [each for each in list_parked_batches(connection) if each.id.startswith(f"{BATCH_PREFIX}{wanted}")]
    if not found or not wanted:
        cause = f"no batch with the id {BATCH_PREFIX}{wanted:.{BATCH_DIGITS}} is parked"
        raise Refused(cause, "xbus parked batch list shows those that are", code="batch_not_parked")
    if len(found) > 1:
        named = ", ".join(each.id for each in found[:5])
        raise Refused(f"several batches begin with {digits}", f"give more of one: {named}", code="ambiguous_id")
    return found[0]


def read_parked_events(connection: sa.Connection, found: ParkedBatch) -> Sequence[EventHead]:
    """Read which events are in a parked batch, whole or in part."""
    read = model.reader_event_type.c
    wanted = sa.select(read.event_type_id).where(read.service_id == found.range.service_id)
    types = frozenset(connection.execute(wanted).scalars())
    return read_heads(connection, types, found.range.stretches, found.range.batch_end)


def resume_batch(connection: sa.Connection, found: ParkedBatch, decision: RepairDecision) -> None:
    """Have a parked batch called again; its attempts are counted anew.

    Raises:
        Refused: it is parked no longer (``batch_not_parked``).
    """
    _check_parked(connection, found)
    check_move(RANGE_MOVES, RangeState.PARKED, RangeState.FREE)
    again = replace(found.range, counter=found.range.counter + 1, attempts=0)
    write_range(connection, again, parked_at=None)
    have_broker_notice(connection)
    _note(connection, found, decision, "resumed")


def drop_batch(connection: sa.Connection, found: ParkedBatch, decision: RepairDecision) -> None:
    """Have a subscriber go without a parked batch, for good.

    Raises:
        Refused: it is parked no longer (``batch_not_parked``).
    """
    _check_parked(connection, found)
    check_move(RANGE_MOVES, RangeState.PARKED, RangeState.COMPLETED)
    complete(connection, found.range, decision.at)
    _note(connection, found, decision, "dropped")


def is_in_parked_batch(service_id: sa.ColumnElement[int], position: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Select positions that are within a batch of a reader that is parked, or was resumed and is not settled."""
    stretch = model.reader_stretch.c
    return (
        sa.exists()
        .where(
            _RANGE.service_id == service_id,
            _RANGE.batch_of.is_not(None),
            _RANGE.completed_at.is_(None),
            stretch.range_id == _RANGE.id,
            stretch.position <= position,
            stretch.to_position >= position,
        )
        .correlate_except(model.reader_range, model.reader_stretch)
    )


def _check_parked(connection: sa.Connection, found: ParkedBatch) -> None:
    locked = sa.select(_RANGE.id).where(_RANGE.id == found.range.id, _RANGE.parked_at.is_not(None))
    if connection.execute(locked.with_for_update()).first() is None:
        raise Refused(
            f"the batch {found.id} is not parked any more",
            "xbus parked batch list shows those that are",
            code="batch_not_parked",
        )


def _note(connection: sa.Connection, found: ParkedBatch, decision: RepairDecision, done: str) -> None:
    kind = "reader" if found.subscription is None else "subscription"
    thing = f'batch {found.id} of {kind} "{found.whose}"'
    note_acts(connection, [act_here(decision.at, done, thing, before="parked", reason=decision.reason)])
