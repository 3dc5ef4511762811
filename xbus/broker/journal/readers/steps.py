"""Steps of the back with a range: taking it, putting a batch out, settling, giving it up.

Each takes effect only where the range has the counter that the caller knows: it is fenced off otherwise.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.slices.values import Place, Stretch
from xbus.broker.journal.readers.ranges import (
    ReaderRange,
    cut,
    joined,
    read_range,
    with_stretches,
    written_hash,
)
from xbus.errors import Refused

KEPT_MOVES = 100_000
"""So many of the newest moves of all readers stay in the history. More can be undone, and take space."""


ACTS_PER_LOOK = 64
"""One checkpoint in so many, by its id, looks for old moves. More keep some moves longer, and cost less each."""


class ReaderAct(StrEnum):
    """The kinds of acts that move a place of a reader."""

    CHECKPOINT = "checkpoint"
    MOVE = "move"
    UNDO = "undo"
    SPLIT = "split"
    MERGE = "merge"
    SKIP = "skip"
    PARK = "park"
    PASS = "pass"  # noqa: S105 - a range passes what falls into others
    """A range came further, as nothing in the log falls into it. People are not shown that."""


_OF_PROGRAMS = (ReaderAct.CHECKPOINT.value, ReaderAct.PASS.value)


@dataclass(frozen=True, slots=True)
class ActNote:
    """An act in the history of a reader: the same for all places that it moves.

    Args:
        id: of the act.
        who: the login of the program, or the person.
        undoes: the act that this one undoes.
    """

    id: UUID
    at: datetime
    who: str
    kind: ReaderAct
    reason: str = ""
    undoes: UUID | None = None


@dataclass(frozen=True, slots=True)
class LeaseOf:
    """A lease as its owner knows it."""

    range_id: int
    counter: int
    program: UUID


@dataclass(frozen=True, slots=True)
class SettleStep:
    """A place up to which the owner of a lease has processed its batch."""

    lease: LeaseOf
    place: Place
    note: ActNote


def lease_lost(range_id: int) -> Refused:
    """Make the error of who is not the owner any more."""
    return Refused(
        f"range {range_id} is read by another program now, or was moved, split or merged",
        "forget its batch, which another program gets, and ask for the next one",
        code="lease_lost",
    )


def take(connection: sa.Connection, lease: LeaseOf, role_id: int | None, expires_at: datetime) -> ReaderRange:
    """Make a program the owner of a range, under a counter of its own.

    Args:
        lease: with the counter until now.

    Raises:
        Refused: somebody else has changed the range (``lease_lost``).
    """
    row = model.reader_range.c
    taken = (
        sa.update(model.reader_range)
        .where(row.id == lease.range_id, row.counter == lease.counter, row.completed_at.is_(None))
        .values(owner=lease.program, role_id=role_id, expires_at=expires_at, counter=lease.counter + 1)
    )
    if connection.execute(taken).rowcount != 1:
        raise lease_lost(lease.range_id)
    return _present(connection, lease.range_id)


def put_out(connection: sa.Connection, lease: LeaseOf, to: Place, expires_at: datetime) -> ReaderRange:
    """Make the bounds of a batch durable, before it is handed out.

    Raises:
        Refused: the program has lost the range (``lease_lost``).
    """
    return write_range(connection, owned_range(connection, lease).with_batch(to), expires_at=expires_at)


def settle(
    connection: sa.Connection, lease: LeaseOf, place: Place, note: ActNote, *, give_up: bool = False
) -> ReaderRange:
    """Settle a batch up to a place.

    Args:
        give_up: whether the program has the range no longer.

    Raises:
        Refused: the program has lost the range (``lease_lost``), or the place is not within its batch
            (``place_not_in_batch``).
    """
    before = owned_range(connection, lease)
    after = before.settled(place)
    # The end of a batch that stands beside the ring moves no place of the reader, so nothing can undo it.
    if before.batch_of is None:
        note_moves(connection, note, before, after)
        _forget_old(connection, note)
    if after.has_ended:
        return complete(connection, after, note.at)
    gives = give_up and not after.handed_out
    if after is before and not gives:
        return after
    return write_range(connection, replace(after, owner=None) if gives else after, settled_at=note.at)


def settle_and_put_out(
    connection: sa.Connection, done: SettleStep, lease: LeaseOf, to: Place, expires_at: datetime
) -> tuple[ReaderRange, ReaderRange]:
    """Settle a batch, and make the bounds of the next one durable, of the same range or another.

    Returns:
        The range that was settled, and the one of which a batch is out now.

    Raises:
        Refused: as ``settle`` and ``put_out``; then nothing was done.
    """
    if lease.range_id != done.lease.range_id:
        _lock_in_order(connection, done.lease, lease)
        return settle(connection, done.lease, done.place, done.note), put_out(connection, lease, to, expires_at)
    before = owned_range(connection, done.lease)
    settled = before.settled(done.place)
    if settled.has_ended:
        raise lease_lost(lease.range_id)
    note_moves(connection, done.note, before, settled)
    _forget_old(connection, done.note)
    # The range is written once: this is the step of each batch of a reader that is busy.
    out = write_range(connection, settled.with_batch(to), expires_at=expires_at, settled_at=done.note.at)
    return settled, out


def _lock_in_order(connection: sa.Connection, *leases: LeaseOf) -> None:
    """Lock ranges by their ids, as people do who split and merge.

    1. A step locks range 8. 2. A person locks range 7. 3. The step waits for 7 and the person for 8, both for ever.
    """
    ids = {lease.range_id for lease in leases}
    if len(ids) > 1:
        row = model.reader_range.c
        connection.execute(sa.select(row.id).where(row.id.in_(ids)).order_by(row.id).with_for_update()).all()


def release(connection: sa.Connection, leases: Iterable[LeaseOf]) -> None:
    """Give ranges up in order. Ranges that were lost before are left alone."""
    row = model.reader_range.c
    leases = list(leases)
    _lock_in_order(connection, *leases)
    for lease in leases:
        owned = (row.id == lease.range_id, row.counter == lease.counter, row.owner == lease.program)
        connection.execute(sa.update(model.reader_range).where(*owned).values(owner=None, expires_at=None))


def pass_idle(connection: sa.Connection, passed: Sequence[ReaderRange], note: ActNote) -> None:
    """Write down how far ranges have come without a batch, as nothing in the log falls into them.

    Otherwise they lag for ever, though their programs have read all. A range that somebody has changed meanwhile stays
    as it is.
    """
    row = model.reader_range.c
    for known in sorted(passed, key=lambda each: each.id):
        locked = sa.select(row.id).where(row.id == known.id, row.counter == known.counter, row.completed_at.is_(None))
        if connection.execute(locked.with_for_update()).first() is None:
            continue
        before = read_range(connection, known.id)
        if before is not None and not before.handed_out and before.place < known.place:
            after = before.passed(known.place)
            note_moves(connection, note, before, after)
            write_range(connection, after)
    _forget_old(connection, note)


def pass_to(connection: sa.Connection, known: ReaderRange, place: Place, note: ActNote) -> ReaderRange:
    """Have a range go on at a later place; the bus forgets a batch that is out.

    Args:
        known: the range as the caller knows it. Nobody may be at work on a batch that is out.

    Raises:
        Refused: somebody has changed the range (``lease_lost``).
    """
    row = model.reader_range.c
    locked = sa.select(row.id).where(row.id == known.id, row.counter == known.counter, row.completed_at.is_(None))
    before = None
    if connection.execute(locked.with_for_update()).first() is not None:
        before = read_range(connection, known.id)
    if before is None or before.handed_out != known.handed_out:
        raise lease_lost(known.id)
    free = replace(before, stretches=joined(replace(each, until=None) for each in before.stretches))
    if before.handed_out:
        free = replace(free, handed_out=False, owner=None, counter=before.counter + 1, attempts=0, retry_at=None)
    after = free.passed(place)
    note_moves(connection, note, before, after)
    return write_range(connection, after)


def write_range(connection: sa.Connection, changed: ReaderRange, **columns: object) -> ReaderRange:
    """Write owner, counter and stretches of a range.

    Args:
        columns: further columns of ``model.reader_range``.
    """
    values: dict[str, object] = {"owner": changed.owner, "handed_out": changed.handed_out, "counter": changed.counter}
    values |= {"attempts": changed.attempts, "retry_at": changed.retry_at, **columns}
    of_range = {"of_range": changed.id}
    connection.execute(_WRITE_RANGE, of_range | values)
    connection.execute(_DELETE_STRETCHES, of_range)
    connection.execute(_INSERT_STRETCHES, [{"range_id": changed.id, **_columns(each)} for each in changed.stretches])
    return changed


def complete(connection: sa.Connection, ended: ReaderRange, at: datetime) -> ReaderRange:
    """End a range that stands beside the ring, as its batch is settled or dropped. Its row stays."""
    columns = {"completed_at": at, "settled_at": at, "parked_at": None, "expires_at": None}
    return write_range(connection, replace(ended, owner=None), **columns)


def note_moves(connection: sa.Connection, note: ActNote, before: ReaderRange, after: ReaderRange) -> None:
    """Keep in the history where a range stood, and where it stands now."""
    rows = []
    for stretch in after.stretches:
        for former in cut(before.stretches, stretch.first, stretch.last):
            if former.position != stretch.position:
                rows.append(move_row(note, before.service_id, former, stretch.position))
    if rows:
        connection.execute(_INSERT_MOVES, rows)


def _forget_old(connection: sa.Connection, note: ActNote) -> None:
    """Bound the history of checkpoints, at one of them in a while; what people did stays."""
    if note.id.int % ACTS_PER_LOOK:
        return
    row = model.reader_move.c
    newest = sa.select(sa.func.max(row.id)).scalar_subquery()
    old = sa.delete(model.reader_move).where(row.id < newest - KEPT_MOVES, row.kind.in_(_OF_PROGRAMS))
    connection.execute(old)


def move_row(note: ActNote, service_id: int, former: Stretch, to: Place) -> dict[str, object]:
    places = {
        f"{side}_{part}": number
        for side, place in (("from", former.position), ("to", to))
        for part, number in zip(Place._fields, place, strict=True)
    }
    return {
        "service_id": service_id,
        "act": note.id,
        "at": note.at,
        "who": note.who,
        "kind": note.kind.value,
        "reason": note.reason,
        "undoes": note.undoes,
        "first": written_hash(former.first),
        "last": written_hash(former.last),
        **places,
    }


def owned_range(connection: sa.Connection, lease: LeaseOf) -> ReaderRange:
    """Read a range of a program, and keep others from changing it until the transaction ends."""
    known = {"of_range": lease.range_id, "of_counter": lease.counter, "of_program": lease.program}
    found = next(iter(with_stretches(connection, _OWNED, **known)), None)
    if found is None:
        raise lease_lost(lease.range_id)
    return found


def _present(connection: sa.Connection, range_id: int) -> ReaderRange:
    found = read_range(connection, range_id)
    assert found is not None, "the caller has just seen the range"
    return found


def _columns(stretch: Stretch) -> dict[str, object]:
    until = stretch.until
    return {
        "first": written_hash(stretch.first),
        "last": written_hash(stretch.last),
        "position": stretch.position.position,
        "event": stretch.position.event,
        "item": stretch.position.item,
        "to_position": None if until is None else until.position,
        "to_event": None if until is None else until.event,
        "to_item": None if until is None else until.item,
    }


# Made once: to build a statement takes longer than to carry it out.
_RANGE = model.reader_range.c
_OF_RANGE = _RANGE.id == sa.bindparam("of_range")
_OWNED = (
    sa.select(model.reader_range)
    .where(
        _OF_RANGE,
        _RANGE.counter == sa.bindparam("of_counter"),
        _RANGE.owner == sa.bindparam("of_program"),
        _RANGE.completed_at.is_(None),
    )
    .with_for_update()
)
_WRITE_RANGE = sa.update(model.reader_range).where(_OF_RANGE)
_DELETE_STRETCHES = sa.delete(model.reader_stretch).where(model.reader_stretch.c.range_id == sa.bindparam("of_range"))
_INSERT_STRETCHES = sa.insert(model.reader_stretch)
_INSERT_MOVES = sa.insert(model.reader_move)
