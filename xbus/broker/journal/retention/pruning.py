"""Removal of envelopes that nobody needs any more, step by step, and the bytes of those that are left.

The removing transaction decides what is needed (``needed.py``) and what rules keep (``rules.py``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.bulk.cleaning import discard_outputs, remove_outputs, with_outputs
from xbus.broker.journal.database.compression import PLAIN_SIZE, OfEvent
from xbus.broker.journal.log.contents import forget_removed
from xbus.broker.journal.log.envelopes import is_in
from xbus.broker.journal.objects.removal import doom
from xbus.broker.journal.readers.settings import is_in_span
from xbus.broker.journal.retention.needed import IDS, OPEN_REPLIES, Candidate
from xbus.broker.journal.retention.rules import PAGE_ENVELOPES, SCANNED_POSITIONS, Scan, is_limit, search
from xbus.clock import span
from xbus.model.base import UNREADABLE
from xbus.states import EnvelopeState

# -- skipping ----------------------------------------------------------------------------------------------------------
# Counts the envelopes that readers never get, because retention does not wait for them.


def note_skipped(connection: sa.Connection, envelope_ids: Sequence[UUID]) -> None:
    """Count envelopes that are removed now at each range that has not passed them.

    Nobody knows any more which range an envelope belonged to: a range counts all that its reader wanted.
    """
    reader, read_type, range_ = model.reader.c, model.reader_event_type.c, model.reader_range.c
    wanted = (
        sa.select(reader.service_id, model.envelope.c.position)
        .join(model.reader_event_type, read_type.service_id == reader.service_id)
        .join(model.graph, model.graph.c.event_type_id == read_type.event_type_id)
        .join(model.event, model.event.c.graph_id == model.graph.c.id)
        .join(model.envelope, model.envelope.c.id == model.event.c.envelope_id)
        .where(
            sa.or_(~reader.keeps, reader.detached_at.is_not(None)),
            model.envelope.c.id.in_(list(envelope_ids)),
            model.envelope.c.position.is_not(None),
            is_in_span(model.envelope.c.position),
        )
        .distinct()
    )
    for service_id, position in connection.execute(wanted).all():
        behind = sa.exists().where(
            model.reader_stretch.c.range_id == range_.id, model.reader_stretch.c.position <= position
        )
        missed = sa.update(model.reader_range).where(
            range_.service_id == service_id, range_.completed_at.is_(None), behind
        )
        connection.execute(missed.values(skipped=range_.skipped + 1))


STEP_BYTES = 4 * 1024 * 1024
"""Bytes of segments that one step removes. More costs fewer commits and blocks other writes for longer."""

SEGMENT_ROWS = 500


@dataclass(frozen=True, slots=True)
class PruningStep:
    """The result of a step.

    Args:
        envelopes: how many are gone, or have nothing left but what their idempotency key needs.
        data_bytes: of the segments that were removed.
        after: the next step goes on above this position; None where this one found the end.
    """

    envelopes: int
    data_bytes: int
    after: int | None


def read_stored_bytes(connection: sa.Connection) -> int:
    """Sum the bytes of all segments' data."""
    total = connection.execute(sa.select(sa.func.coalesce(sa.func.sum(model.writer.c.stored_bytes), 0))).scalar_one()
    return max(0, int(total))


def prune_settled(
    connection: sa.Connection,
    writer: str,
    after: int,
    scan: Scan,
    now: datetime,
    *,
    keep_rows: bool,
    scanned_positions: int = SCANNED_POSITIONS,
    step_bytes: int = STEP_BYTES,
) -> PruningStep:
    """Remove some of the received envelopes that are settled for all and kept long enough, in position order.

    Args:
        connection: in a transaction of its own, which this keeps short.
        writer: who removes: the bytes are accounted to its row of ``model.writer``.
        after: a position; what is looked at lies above it.
        scan: what may go.
        now: what ``pruned_at`` is set to.
        keep_rows: whether all keep their own rows, with the receipt, as those with an idempotency key always do: their
            emitters may still repeat calls that got no answer.
        scanned_positions: how much of the log is looked at.
        step_bytes: about so many bytes are removed at the most.
    """
    found = search(connection, after, scan, keep_rows=keep_rows, scanned_positions=scanned_positions)
    settled = found.settled
    if not settled:
        return PruningStep(0, 0, found.after)
    before = _before_outputs(connection, settled)
    if not before:
        # From here on nobody delivers or repeats it.
        _mark(connection, settled[:1], now)
        data_bytes = _remove_outputs(connection, writer, settled[0], now, step_bytes)
        return PruningStep(0, data_bytes, settled[0].position - 1)
    data_bytes, emptied = remove_segments(connection, writer, before, step_bytes)
    # From its first removed segment on nobody may repeat an envelope.
    _mark(connection, before[: len(emptied) + 1], now)
    _remove(connection, emptied)
    # One that is too large for a step, or has outputs, is looked at again in the next.
    after_this = found.after if len(emptied) == len(settled) else settled[len(emptied)].position - 1
    return PruningStep(len(emptied), data_bytes, after_this)


def prune_cancelled(
    connection: sa.Connection, writer: str, until: datetime, now: datetime, *, step_bytes: int = STEP_BYTES
) -> PruningStep:
    """Remove some envelopes that were cancelled before ``until``; ``after`` only says whether more are left.

    An envelope that a recipient may still have open for an immediate reply stays until the recipient has forgotten it.
    """
    envelope, reply = model.envelope.c, model.reply.c
    is_held = sa.exists().where(reply.envelope_id == envelope.id, reply.state.in_(OPEN_REPLIES))
    rows = connection.execute(
        sa.select(envelope.id, envelope.closed_at)
        .where(is_in(EnvelopeState.CANCELLED), envelope.pruned_at.is_(None))
        .where(_is_before(envelope.closed_at, until), ~is_held)
        .order_by(envelope.closed_at)
        .limit(PAGE_ENVELOPES)
    ).all()
    found = [Candidate(envelope_id, 0, closed_at, None, keeps_row=False) for envelope_id, closed_at in rows]
    before = _before_outputs(connection, found)
    if found and not before:
        return PruningStep(0, _remove_outputs(connection, writer, found[0], now, step_bytes), 0)
    data_bytes, emptied = remove_segments(connection, writer, before, step_bytes)
    _mark(connection, emptied, now)
    _remove(connection, emptied)
    return PruningStep(len(emptied), data_bytes, 0 if found else None)


def forget_keys(connection: sa.Connection, now: datetime) -> PruningStep:
    """Remove some keys of removed envelopes that are older than their emitters' profiles keep them.

    An emitter that uses one of them again sends a new envelope. ``after`` only says whether more are left.
    """
    profile, emitter, spent = model.emitter_profile.c, model.emitter.c, model.spent_key.c
    kept = connection.execute(sa.select(profile.id, profile.keep_keys).where(profile.keep_keys.is_not(None))).all()
    for profile_id, seconds in kept:
        if not is_limit(seconds, 0):
            continue  # They stay: an edit by SQL left no limit that makes sense, and health tells of the row.
        of_profile = sa.select(emitter.id).where(emitter.profile_id == profile_id)
        old = (
            sa.select(spent.envelope_id)
            .where(spent.emitter_id.in_(of_profile), _is_before(spent.closed_at, now - span(seconds)))
            .limit(PAGE_ENVELOPES)
        )
        ids = connection.execute(old).scalars().all()
        if ids:
            connection.execute(sa.delete(model.spent_key).where(spent.envelope_id.in_(ids)))
            return PruningStep(len(ids), 0, 0)
    return PruningStep(0, 0, None)


def _is_before(moment: sa.ColumnElement[datetime], limit: datetime) -> sa.ColumnElement[bool]:
    """Build the condition that a moment is old. SQLite compares one that can't be read as text."""
    return sa.and_(moment > UNREADABLE, moment < limit)


def _before_outputs(connection: sa.Connection, found: Sequence[Candidate]) -> Sequence[Candidate]:
    """Cut the list before the first envelope with bulk outputs, which go before it."""
    having = with_outputs(connection, [candidate.envelope_id for candidate in found])
    return list(takewhile(lambda candidate: candidate.envelope_id not in having, found))


def _remove_outputs(
    connection: sa.Connection, writer: str, candidate: Candidate, now: datetime, step_bytes: int
) -> int:
    """Remove some of what bulk workers made for an envelope; how many bytes counted until now."""
    data_bytes = discard_outputs(connection, writer, [candidate.envelope_id], now)
    remove_outputs(connection, candidate.envelope_id, step_bytes)
    return data_bytes


def _mark(connection: sa.Connection, begun: Sequence[Candidate], now: datetime) -> None:
    if begun:
        connection.execute(_MARK, {"ids": [candidate.envelope_id for candidate in begun], "now": now})


def remove_segments(
    connection: sa.Connection,
    writer: str,
    settled: Sequence[Candidate],
    step_bytes: int = STEP_BYTES,
    *,
    keeps_events: bool = False,
) -> tuple[int, list[Candidate]]:
    """Remove segments of envelopes in their order; how many bytes, and the envelopes that have none left.

    Args:
        keeps_events: whether events without segments stay. Otherwise the caller removes their rows, with the segments
            that lie in these.
    """
    small = list(_fitting(settled, step_bytes))
    total = _remove_all(connection, small, keeps_events=keeps_events)
    emptied = small
    for candidate in settled[len(small) :]:
        if total >= step_bytes:
            break
        removed, is_empty = _remove_some(connection, candidate, step_bytes - total)
        total += removed
        if is_empty:
            emptied.append(candidate)
    if total:
        connection.execute(_SHRINK, {"of_name": writer, "data_bytes": total})
    return total, emptied


def _fitting(settled: Sequence[Candidate], step_bytes: int) -> Iterator[Candidate]:
    """Iterate over as many of the first envelopes as a step may remove at once."""
    total = 0
    for candidate in settled:
        total += step_bytes if candidate.data_bytes is None else candidate.data_bytes
        if total >= step_bytes:
            return
        yield candidate


def _remove_all(connection: sa.Connection, small: Sequence[Candidate], *, keeps_events: bool) -> int:
    """Remove all segments of some envelopes; how many bytes."""
    if not small:
        return 0
    ids = {"ids": [candidate.envelope_id for candidate in small]}
    total, outside = connection.execute(_SIZE, ids).one()
    if outside:
        doom(connection, (tuple(row) for row in connection.execute(_OBJECTS, ids).all()))
    connection.execute(_REMOVE_SEGMENTS, ids)
    if keeps_events:
        connection.execute(_EMPTY_EVENTS, ids)
    return int(total)


def _remove_some(connection: sa.Connection, candidate: Candidate, most_bytes: int) -> tuple[int, bool]:
    """Remove segments of one envelope; how many bytes, and whether it has none left."""
    segment, event = model.log_segment.c, model.event.c
    own = sa.select(event.id).where(event.envelope_id == candidate.envelope_id)
    sizes = connection.execute(
        sa.select(segment.event_id, segment.first_index, PLAIN_SIZE, segment.store_id, segment.hash)
        .where(segment.event_id.in_(own))
        .limit(SEGMENT_ROWS)
    ).all()
    total = rows = 0
    size: Any
    for event_id, first_index, size, store_id, digest in sizes:
        if total >= most_bytes:
            break
        if store_id is not None:
            doom(connection, [(store_id, digest)])
        if not connection.execute(_REMOVE_SEGMENT, {"of_event": event_id, "index": first_index}).rowcount:
            connection.execute(_EMPTY_EVENT, {"of_event": event_id})
        total += size
        rows += 1
    return total, rows == len(sizes) < SEGMENT_ROWS


def _remove(connection: sa.Connection, emptied: Sequence[Candidate]) -> None:
    """Remove all else of envelopes whose segments are gone; a key becomes a spent one."""
    if not emptied:
        return
    ids = {"ids": [candidate.envelope_id for candidate in emptied]}
    note_skipped(connection, ids["ids"])
    for statement in _REMOVALS:
        connection.execute(statement, ids)
    # One that was cancelled has no place in the log.
    forget_removed(connection, [candidate.position for candidate in emptied if candidate.position])
    gone = [candidate.envelope_id for candidate in emptied if not candidate.keeps_row]
    connection.execute(_SPEND_KEYS, {"ids": gone})
    connection.execute(sa.delete(model.envelope).where(model.envelope.c.id.in_(IDS)), {"ids": gone})
    connection.execute(_REMOVE_HEADERS, ids)


_EVENT_IDS = sa.select(model.event.c.id).where(model.event.c.envelope_id.in_(IDS))
_REMOVALS: tuple[sa.Delete, ...] = (
    sa.delete(model.failure).where(model.failure.c.envelope_id.in_(IDS)),
    sa.delete(model.correction).where(model.correction.c.event_id.in_(_EVENT_IDS)),
    sa.delete(model.parked_item).where(model.parked_item.c.envelope_id.in_(IDS)),
    sa.delete(model.reply).where(model.reply.c.event_id.in_(_EVENT_IDS)),
    sa.delete(model.event).where(model.event.c.envelope_id.in_(IDS)),
    sa.delete(model.envelope_role).where(model.envelope_role.c.envelope_id.in_(IDS)),
)
"""In the order in which rows refer to each other."""

_OF_KEY = ("position", "events", "items", "bytes", "hash", "content_hash")
_SPEND_KEYS = sa.insert(model.spent_key).from_select(
    ["envelope_id", "emitter_id", "key", "closed_at", *_OF_KEY],
    sa.select(
        *(model.envelope.c.id, model.envelope.c.emitter_id, model.envelope.c.idempotency_key),
        *(model.envelope.c.closed_at, *[model.envelope.c[name] for name in _OF_KEY]),
    ).where(model.envelope.c.id.in_(IDS), model.envelope.c.idempotency_key.is_not(None)),
)
_OF_EVENT = OfEvent()
_SIZE = (
    sa.select(sa.func.coalesce(sa.func.sum(_OF_EVENT.size), 0), sa.func.count(model.segment.c.store_id))
    .select_from(_OF_EVENT.joined)
    .where(model.event.c.envelope_id.in_(IDS))
)
_OBJECTS = sa.select(model.segment.c.store_id, model.segment.c.hash).where(
    model.segment.c.event_id.in_(_EVENT_IDS), model.segment.c.store_id.is_not(None)
)
_REMOVE_SEGMENTS = sa.delete(model.segment).where(model.segment.c.event_id.in_(_EVENT_IDS))
_REMOVE_SEGMENT = sa.delete(model.segment).where(
    model.segment.c.event_id == sa.bindparam("of_event"), model.segment.c.first_index == sa.bindparam("index")
)
_EMPTY: Any = sa.update(model.event).values(data=None, data_hash=None, plain_bytes=None)
_EMPTY_EVENTS = _EMPTY.where(model.event.c.envelope_id.in_(IDS), model.event.c.data.is_not(None))
_EMPTY_EVENT = _EMPTY.where(model.event.c.id == sa.bindparam("of_event"))
_MARK: Any = (
    sa.update(model.envelope)
    .where(model.envelope.c.id.in_(IDS), model.envelope.c.pruned_at.is_(None))
    .values(pruned_at=sa.bindparam("now"))
)
_REMOVE_HEADERS: Any = (
    sa.update(model.envelope)
    .where(model.envelope.c.id.in_(IDS), model.envelope.c.headers.is_not(None))
    .values(headers=None)
)
"""A row that is kept is only the receipt for a key."""
_SHRINK: Any = (
    sa.update(model.writer)
    .where(model.writer.c.name == sa.bindparam("of_name"))
    .values(stored_bytes=model.writer.c.stored_bytes - sa.bindparam("data_bytes", type_=sa.BigInteger))
)
