"""Acts of people on a reader: moving it, undoing a move, splitting and merging its ranges.

Each act writes itself into the history of the reader and into the audit. A program whose range was touched loses it,
and what it settles late is refused. A running broker notices within two seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from shlex import quote
from uuid import UUID, uuid4

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import RepairDecision, act_here, note_acts
from xbus.broker.journal.log.slices.listing import Start, read_start
from xbus.broker.journal.log.slices.values import Place, Stretch
from xbus.broker.journal.readers.ranges import ReaderRange, cut, joined, read_ranges, written_hash
from xbus.broker.journal.readers.settings import ReaderEntry, read_readers
from xbus.broker.journal.readers.steps import ActNote, ReaderAct, move_row, note_moves, write_range
from xbus.errors import Refused

OF_BOTS = "bot/"
"""So begin the names of the readers that the bus has of its own for bots that read."""


@dataclass(frozen=True, slots=True)
class RangeMove:
    """A range before and after an act of a person."""

    before: ReaderRange
    after: ReaderRange


def find_reader(connection: sa.Connection, name: str) -> ReaderEntry:
    """Find a reader in use.

    Raises:
        Refused: no reader has this name (``unknown_name``).
    """
    found = next((entry for entry in read_readers(connection) if entry.name == name), None)
    if found is None:
        raise Refused(f'there is no reader "{name}"', "xbus reader list shows all readers", code="unknown_name")
    return found


def move(
    connection: sa.Connection, name: str, start: Start, decision: RepairDecision, range_id: int | None = None
) -> list[RangeMove]:
    """Have a reader go on at another place.

    Args:
        start: a place, a moment, ``head`` or ``oldest``.
        range_id: only this range; None for all.

    Raises:
        Refused: the reader or the range is unknown (``unknown_name``, ``unknown_range``), or the reader of a bot would
            go back over what was done (``bot_goes_back``).
        BadPlace: the log ends before the place (``place_beyond_end``).
    """
    entry = _locked(connection, name)
    moves = plan_move(connection, name, start, range_id)
    _write(connection, entry, moves, _note(decision, ReaderAct.MOVE))
    return moves


def plan_move(connection: sa.Connection, name: str, start: Start, range_id: int | None = None) -> list[RangeMove]:
    """Say what :func:`move` would do now; it raises the same."""
    entry = find_reader(connection, name)
    place = read_start(connection, start)
    chosen = _chosen(connection, entry, None if range_id is None else [range_id])
    moves = [RangeMove(each, each.moved(each.first, each.last, place)) for each in chosen]
    _check_done_stays(connection, entry, moves)
    return moves


def undo(connection: sa.Connection, name: str, decision: RepairDecision, act: UUID | None = None) -> list[RangeMove]:
    """Put back what an act moved, a checkpoint or a move, to where it stood before.

    Args:
        act: of the history; None for the newest that is not undone yet.

    Raises:
        Refused: the reader is unknown (``unknown_name``), nothing can be undone (``nothing_to_undo``), the act has
            moved no place (``not_undoable``), or the reader of a bot would go back over what was done
            (``bot_goes_back``).
    """
    entry = _locked(connection, name)
    undone, moves = plan_undo(connection, name, act)
    _write(connection, entry, moves, _note(decision, ReaderAct.UNDO, undone))
    return moves


def plan_undo(connection: sa.Connection, name: str, act: UUID | None = None) -> tuple[UUID, list[RangeMove]]:
    """Say what :func:`undo` would do now, and which act it would undo; it raises the same."""
    entry = find_reader(connection, name)
    row = model.reader_move.c
    _check_has_moved(connection, entry, act)
    undone = sa.select(row.undoes).where(row.service_id == entry.id, row.undoes.is_not(None))
    acts = sa.select(row.act).where(
        row.service_id == entry.id,
        row.kind.in_([ReaderAct.CHECKPOINT.value, ReaderAct.MOVE.value, ReaderAct.SKIP.value]),
        row.act.not_in(undone),
    )
    wanted = acts if act is None else acts.where(row.act == act)
    found: UUID | None = connection.execute(wanted.order_by(row.id.desc()).limit(1)).scalar_one_or_none()
    if found is None:
        cause = "has no checkpoint and no move" if act is None else f"has no act {act}"
        raise Refused(
            f'the reader "{name}" {cause} that can be undone',
            "xbus reader show tells its history",
            code="nothing_to_undo",
        )
    moved = {each.id: each for each in _chosen(connection, entry)}
    before = dict(moved)
    rows = connection.execute(sa.select(model.reader_move).where(row.act == found)).all()
    for each in rows:
        first, last = int(each.first, 16), int(each.last, 16)
        place = Place(each.from_position, each.from_event, each.from_item)
        for key, present in moved.items():
            if present.first <= last and present.last >= first:
                moved[key] = present.moved(first, last, place)
    moves = [RangeMove(before[key], moved[key]) for key in moved if moved[key] is not before[key]]
    _check_done_stays(connection, entry, moves)
    return found, moves


def _check_done_stays(connection: sa.Connection, entry: ReaderEntry, moves: Sequence[RangeMove]) -> None:
    """Refuse to give a bot again what it has done: in batches with other bounds it would put it twice."""
    if not entry.name.startswith(OF_BOTS):
        return
    row = model.reader_move.c
    done = sa.select(row.id).where(row.service_id == entry.id, row.kind == ReaderAct.CHECKPOINT.value)
    for stretch in (stretch for each in moves for stretch in each.after.stretches):
        of_stretch = done.where(row.first <= written_hash(stretch.last), row.last >= written_hash(stretch.first))
        beyond = sa.tuple_(row.to_position, row.to_event, row.to_item) > sa.tuple_(*stretch.position)
        if connection.execute(of_stretch.where(beyond).limit(1)).first() is not None:
            raise Refused(
                f'the reader "{entry.name}" would go back over batches that its bot has done',
                "move it to a later place; to have past events again, move the reader of a bot with another name",
                code="bot_goes_back",
            )


def _check_has_moved(connection: sa.Connection, entry: ReaderEntry, act: UUID | None) -> None:
    """Refuse to undo an act that has its own opposite."""
    row = model.reader_move.c
    kind = connection.execute(sa.select(row.kind).where(row.service_id == entry.id, row.act == act).limit(1)).scalar()
    if kind in _OPPOSITES:
        raise Refused(
            f"the act {act} is a {kind}, which has moved no place", _OPPOSITES[kind].format(quote(entry.name)),
            code="not_undoable",
        )  # fmt: skip


def _check_nothing_is_out(entry: ReaderEntry, ranges: Sequence[ReaderRange]) -> None:
    """Refuse to cut a batch of a bot: its output may be sealed, under a key of the whole batch."""
    if entry.name.startswith(OF_BOTS) and any(each.handed_out for each in ranges):
        raise Refused(
            f'the bot of the reader "{entry.name}" is at work on a batch of the range',
            "pause the bot, wait until no run of it is due or running, and try again",
            code="batch_is_out",
        )


def resolve_act(connection: sa.Connection, name: str, digits: str) -> UUID:
    """Find the act of a reader's history whose id begins with some digits.

    Raises:
        Refused: the reader is unknown (``unknown_name``), or not exactly one act begins so (``nothing_to_undo``).
    """
    entry = find_reader(connection, name)
    acts = sa.select(model.reader_move.c.act).where(model.reader_move.c.service_id == entry.id).distinct()
    found: list[UUID] = [act for act in connection.execute(acts).scalars() if str(act).startswith(digits.lower())]
    if len(found) != 1:
        cause = "has no act that begins" if not found else f"has {len(found)} acts that begin"
        raise Refused(
            f'the reader "{name}" {cause} with {digits}',
            "xbus reader show tells its history",
            code="nothing_to_undo",
        )
    return found[0]


def split(connection: sa.Connection, name: str, range_id: int, decision: RepairDecision) -> list[ReaderRange]:
    """Cut a range into two halves, which begin where it stands, with its batch if one is out.

    Raises:
        Refused: the reader or the range is unknown (``unknown_name``, ``unknown_range``); the range has one hash
            alone (``range_too_small``); a bot works on its batch (``batch_is_out``).
    """
    entry = _locked(connection, name)
    parent = plan_split(connection, name, range_id)
    middle = (parent.first + parent.last) // 2
    spans = [(parent.first, middle), (middle + 1, parent.last)]
    children = [(first, last, cut(parent.stretches, first, last)) for first, last in spans]
    return _replace(connection, entry, [parent], children, _note(decision, ReaderAct.SPLIT))


def plan_split(connection: sa.Connection, name: str, range_id: int) -> ReaderRange:
    """Find the range that :func:`split` would cut now; it raises the same."""
    entry = find_reader(connection, name)
    (parent,) = _chosen(connection, entry, [range_id])
    _check_nothing_is_out(entry, [parent])
    if parent.first == parent.last:
        raise Refused(f"range {range_id} has one hash alone", "split another range", code="range_too_small")
    return parent


def merge(
    connection: sa.Connection, name: str, range_ids: Sequence[int], decision: RepairDecision
) -> list[ReaderRange]:
    """Make one range of neighbours. Its first batch is what is out of them; then each goes on where it stood.

    Raises:
        Refused: the reader or a range is unknown (``unknown_name``, ``unknown_range``); the ranges are no neighbours
            (``ranges_apart``); a bot works on a batch of them (``batch_is_out``).
    """
    entry = _locked(connection, name)
    parents = plan_merge(connection, name, range_ids)
    stretches = tuple(each for parent in parents for each in parent.stretches)
    span = (parents[0].first, parents[-1].last, stretches)
    return _replace(connection, entry, parents, [span], _note(decision, ReaderAct.MERGE))


def plan_merge(connection: sa.Connection, name: str, range_ids: Sequence[int]) -> list[ReaderRange]:
    """Find the ranges of which :func:`merge` would make one now, in the order of their hashes; it raises the same."""
    entry = find_reader(connection, name)
    parents = _chosen(connection, entry, range_ids)
    _check_nothing_is_out(entry, parents)
    is_gapless = all(one.last + 1 == other.first for one, other in pairwise(parents))
    if len(parents) < 2 or not is_gapless:
        raise Refused(
            "only neighbours on the ring make one range",
            "xbus reader show lists the ranges in their order on the ring",
            code="ranges_apart",
        )
    return parents


def _locked(connection: sa.Connection, name: str) -> ReaderEntry:
    """Find a reader, and keep everybody else from changing any of its ranges."""
    entry = find_reader(connection, name)
    row = model.reader_range.c
    connection.execute(sa.select(row.id).where(row.service_id == entry.id).order_by(row.id).with_for_update()).all()
    return entry


def _chosen(connection: sa.Connection, entry: ReaderEntry, range_ids: Sequence[int] | None = None) -> list[ReaderRange]:
    """Read ranges of a reader in the order of their hashes."""
    found = read_ranges(connection, [entry.id])
    if range_ids is None:
        return found
    for range_id in range_ids:
        if range_id not in {each.id for each in found}:
            raise Refused(
                f'the reader "{entry.name}" has no range {range_id}',
                "xbus reader show lists its ranges",
                code="unknown_range",
            )
    return [each for each in found if each.id in range_ids]


def _note(decision: RepairDecision, kind: ReaderAct, undoes: UUID | None = None) -> ActNote:
    return ActNote(uuid4(), decision.at, decision.who, kind, decision.reason, undoes)


def _write(connection: sa.Connection, entry: ReaderEntry, moves: Sequence[RangeMove], note: ActNote) -> None:
    for each in moves:
        note_moves(connection, note, each.before, each.after)
        write_range(connection, replace(each.after, counter=each.after.counter + 1))
    _tell(connection, entry, note, _places([each.before for each in moves]), _places([each.after for each in moves]))


def _replace(
    connection: sa.Connection,
    entry: ReaderEntry,
    parents: Sequence[ReaderRange],
    children: Sequence[tuple[int, int, tuple[Stretch, ...]]],
    note: ActNote,
) -> list[ReaderRange]:
    """Complete ranges, which keeps their rows, and let others begin where they stand."""
    table = model.reader_range
    completed = sa.update(table).where(table.c.id.in_([each.id for each in parents]))
    connection.execute(completed.values(completed_at=note.at, owner=None, expires_at=None))
    made = []
    for first, last, stretches in children:
        hashes = {"first": written_hash(first), "last": written_hash(last)}
        new = sa.insert(table).values(service_id=entry.id, **hashes).returning(table.c.id)
        range_id: int = connection.execute(new).scalar_one()
        is_out, bounded = _with_what_is_out(stretches)
        child = ReaderRange(range_id, entry.id, first, last, None, 0, is_out, bounded)
        made.append(write_range(connection, child))
    _note_unmoved(connection, note, made)
    _tell(connection, entry, note, _places(parents), _places(made))
    return made


def _with_what_is_out(stretches: Sequence[Stretch]) -> tuple[bool, tuple[Stretch, ...]]:
    """Have all stretches bounded where anything is out: what has no part in that batch ends where it begins."""
    if not any(each.until is not None and each.until > each.position for each in stretches):
        return False, joined(replace(each, until=None) for each in stretches)
    return True, joined(replace(each, until=each.until or each.position) for each in stretches)


def _note_unmoved(connection: sa.Connection, note: ActNote, ranges: Sequence[ReaderRange]) -> None:
    """Keep a split or a merge in the history, though nothing was moved."""
    rows = [move_row(note, each.service_id, part, part.position) for each in ranges for part in each.stretches]
    connection.execute(sa.insert(model.reader_move), rows)


def _tell(connection: sa.Connection, entry: ReaderEntry, note: ActNote, before: str, after: str) -> None:
    """Note an act in the audit, and have the running broker notice it."""
    have_broker_notice(connection)
    done = _DONE[note.kind]
    act = act_here(note.at, done, f'reader "{entry.name}"', before=before, after=after, reason=note.reason)
    note_acts(connection, [act])


def have_broker_notice(connection: sa.Connection) -> None:
    """Have the running broker read the ranges anew."""
    version = model.configuration.c.version
    connection.execute(sa.update(model.configuration).values(version=version + 1, changing=True))
    connection.execute(sa.update(model.configuration).values(changing=False))


_DONE = {
    ReaderAct.MOVE: "moved",
    ReaderAct.UNDO: "move_undone",
    ReaderAct.SPLIT: "split",
    ReaderAct.MERGE: "merged",
}


_OPPOSITES = {
    ReaderAct.SPLIT.value: "join the ranges again by xbus reader merge; xbus reader show {0} lists them",
    ReaderAct.MERGE.value: "halve the range by xbus reader split; xbus reader show {0} lists it",
    ReaderAct.PARK.value: "xbus parked batch resume has a parked batch called again",
    ReaderAct.UNDO.value: "have the reader go on elsewhere by xbus reader move {0}",
}
"""The next steps for those who would undo what is no move of places."""


def _places(ranges: Sequence[ReaderRange]) -> str:
    return "; ".join(f"range {each.id} at {each.place}" for each in ranges)
