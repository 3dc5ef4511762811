"""``xbus reader`` shows how far readers are, and moves them."""

from abc import ABC
from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID

import click

from xbus.admin.arguments import LIMIT, READER, REASON
from xbus.admin.objects import of_move, of_range, of_reader
from xbus.admin.output import Output, Row, age, counted, name_column
from xbus.admin.program import ROW_ID, Careful, CommandGroup
from xbus.admin.signatures import UNSAID, BusAction, CommandBus, argument, command, command_of, option, shown
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.slices.listing import parse_start
from xbus.broker.journal.readers import people
from xbus.broker.journal.readers.people import RangeMove, find_reader
from xbus.broker.journal.readers.status import (
    MOST_COUNTED_EVENTS,
    PlaceMove,
    RangeStatus,
    ReaderStatus,
    list_moves,
    list_readers,
)
from xbus.rights import Right

NAME = argument(READER)


@click.group(cls=CommandGroup)
def reader() -> None:
    """Show how far readers are, and move them."""


@command(reader)
def list_(bus: CommandBus, output: Output = shown("reader", watch=True)) -> None:
    """Show each reader: where it is, and how far it lags behind.

    PLACE is that of the range that is furthest behind. LAG counts the events of its types from there on, OLDEST is the
    age of the first of them. SKIPPED counts envelopes that retention removed before the reader had read them.
    """
    found = bus.read(list_readers)
    output.listing(found, of_reader, (_row(each, output.now) for each in found), "No readers.")


@command(reader)
def show(bus: CommandBus, name: str = NAME, limit: int = LIMIT, output: Output = shown()) -> None:
    """Show the ranges of a reader, who reads them, and the last moves of its places.

    BEHIND counts events of its types from the place of a range on, up to 10,000; other ranges read some of them.
    """
    with bus.reading() as connection:
        entry = find_reader(connection, name)
        (status,) = list_readers(connection, name)
        moves = list_moves(connection, entry.id, limit)
    if output.as_json:
        told = {"range_list": [*map(of_range, status.ranges)], "history": [*map(of_move, moves)]}
        output.detail({**of_reader(status), **told}, ())
        return
    click.echo("\n".join(output.table([_row(status, output.now)])))
    click.echo("\n".join(output.block("Ranges", [_range_row(each, output) for each in status.ranges])))
    if moves:
        click.echo("\n".join(output.block("History", [_move_row(each, output) for each in moves])))


LOST = "Programs that read them now lose their batches: what they settle late is refused."


class ReaderAction(BusAction, ABC):
    """An action on a reader."""

    right = Right.OPERATOR

    name: str = argument(READER)


class MoveReader(ReaderAction):
    """Have the reader NAME go on at PLACE: a position, a moment, head or oldest.

    Programs that read now lose their batches: what they settle late is refused, and they go on at the new place.
    """

    path = "readers/move"
    title = "Move"
    words = "reader move"
    question = "Move {name}?"
    has_dry_run = True

    place: str = argument(
        title="Place", about="A position of the log, a date and time in UTC, oldest or head.", longest=64
    )
    range_id: int | None = option("Move only this range.", ROW_ID, "--range", metavar="RANGE")
    reason: str = REASON

    def preview(self, bus: CommandBus) -> Iterator[str]:
        # Until the person has typed a place, the head stands for it.
        moves = self._planned(bus, "head" if self.place == UNSAID else self.place)
        if self.place == UNSAID:
            yield f"{counted(len(moves), 'range')} of {self.name} go on at the place that you say."
            yield from _some([f"Range {each.before.id} is at {each.before.place}." for each in moves])
        else:
            yield from _told(moves)
        yield "A place before that has items read again; one behind it has items never read."
        yield LOST

    def plan(self, bus: CommandBus) -> Iterator[str]:
        moves = self._planned(bus, self.place)
        yield f"{counted(len(moves), 'range')} of {self.name} would go on at {moves[0].after.place}:"
        yield from (f"  range {each.before.id} is at {each.before.place}" for each in moves)

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            start, decision = parse_start(self.place), bus.decision(self.reason)
            moves = people.move(connection, self.name, start, decision, self.range_id)
        return _told(moves)

    def _planned(self, bus: CommandBus, place: str) -> Sequence[RangeMove]:
        start = parse_start(place)
        return bus.read(lambda connection: people.plan_move(connection, self.name, start, self.range_id))


class UndoMove(ReaderAction):
    """Put the reader NAME back to where it stood before its last checkpoint or move that is not undone yet.

    The history of xbus reader show names the acts.
    """

    path = "readers/undo"
    title = "Undo"
    words = "reader undo"
    question = "Have {name} read again what it has settled?"

    act: str | None = option("Undo this act of the history; the newest by default.", longest=36, metavar="ACT")
    reason: str = REASON

    def preview(self, bus: CommandBus) -> Iterator[str]:
        _, moves = bus.read(lambda connection: people.plan_undo(connection, self.name, self._resolved(connection)))
        yield from _told(moves)
        yield LOST

    def plan(self, bus: CommandBus) -> Iterator[str]:
        with bus.reading() as connection:
            find_reader(connection, self.name)
            self._resolved(connection)
        yield from ()

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            wanted = self._resolved(connection)
            moves = people.undo(connection, self.name, bus.decision(self.reason), wanted)
        return _told(moves)

    def _resolved(self, connection: Connection) -> UUID | None:
        return None if self.act is None else people.resolve_act(connection, self.name, self.act)


class SplitRange(ReaderAction):
    """Cut RANGE of the reader NAME into two halves, so that two programs can read them.

    Both begin where the range stands. A batch that is out is delivered again, in two parts.
    """

    path = "readers/split"
    title = "Split"
    words = "reader split"

    range_id: int = argument(ROW_ID, metavar="RANGE")
    reason: str = REASON

    def preview(self, bus: CommandBus) -> Iterator[str]:
        parent = bus.read(lambda connection: people.plan_split(connection, self.name, self.range_id))
        yield f"Cut range {parent.id} into two halves, which go on at {parent.place}."
        if parent.handed_out:
            yield "The batch that is out is delivered again, in two parts."

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            one, other = people.split(connection, self.name, self.range_id, bus.decision(self.reason))
        yield f"Range {self.range_id} is split into {one.id} and {other.id}."


class MergeRanges(ReaderAction):
    """Make one range of neighbours of the reader NAME, so that one program reads them.

    Each part goes on where it stands. Batches that are out are delivered again, as one.
    """

    path = "readers/merge"
    title = "Merge"
    words = "reader merge"

    range_ids: Sequence[int] = argument(ROW_ID, required=True, metavar="RANGE...")
    reason: str = REASON

    def preview(self, bus: CommandBus) -> Iterator[str]:
        parents = bus.read(lambda connection: people.plan_merge(connection, self.name, self.range_ids))
        yield f"Make one range of {', '.join(map(str, self.range_ids))}. Each part goes on where it stands."
        if any(each.handed_out for each in parents):
            yield "Batches that are out are delivered again, as one."

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            (made,) = people.merge(connection, self.name, self.range_ids, bus.decision(self.reason))
        yield f"Ranges {', '.join(map(str, self.range_ids))} are merged into {made.id}."


command_of(MoveReader, reader, Careful)
command_of(UndoMove, reader, Careful)
command_of(SplitRange, reader)
command_of(MergeRanges, reader)

SHOWN_RANGES = 20
"""Ranges that are named one by one. More make a page long."""


def _told(moves: Sequence[RangeMove]) -> Iterator[str]:
    return _some(
        [f"Range {each.before.id} goes on at {each.after.place}; it was at {each.before.place}." for each in moves]
    )


def _some(sentences: Sequence[str]) -> Iterator[str]:
    yield from sentences[:SHOWN_RANGES]
    if len(sentences) > SHOWN_RANGES:
        yield f"So do {len(sentences) - SHOWN_RANGES:,} more."


def _row(status: ReaderStatus, now: datetime) -> Row:
    lag = f"{MOST_COUNTED_EVENTS:,} or more" if status.lag >= MOST_COUNTED_EVENTS else status.lag
    return {
        name_column("READER"): status.entry.name,
        "RANGES": len(status.ranges),
        "PROGRAMS": status.programs,
        "PLACE": str(status.place),
        "LAG": lag,
        "OLDEST": age(status.waits_since, now),
        "SKIPPED": status.skipped or None,
        "KEEPS": "detached" if status.entry.is_detached else "yes" if status.entry.keeps else "no",
        "PAUSED": "yes" if status.is_paused else None,
    }


def _range_row(status: RangeStatus, output: Output) -> Row:
    found = status.range
    return {
        "RANGE": found.id,
        "FROM HASH": f"{found.first:016x}",
        "PLACE": str(found.place),
        "BATCH TO": str(found.batch_end) if found.handed_out else None,
        "BEHIND": status.behind,
        "ROLE": status.role,
        "PROGRAM": None if found.owner is None else str(found.owner),
        "SETTLED": output.when(status.settled_at),
    }


def _move_row(move: PlaceMove, output: Output) -> Row:
    return {
        "AT": output.when(move.at),
        "WHO": move.who,
        "DID": move.kind,
        "FROM HASH": move.first,
        "FROM": str(move.before),
        "TO": str(move.after),
        "ACT": str(move.act),
        "REASON": move.reason or None,
    }
