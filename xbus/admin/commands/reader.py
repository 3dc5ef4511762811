"""``xbus reader`` shows how far readers are, and moves them."""

from collections.abc import Sequence
from datetime import datetime

import click

from xbus.admin.arguments import READER
from xbus.admin.objects import of_move, of_range, of_reader
from xbus.admin.output import Output, Row, age, counted, name_column
from xbus.admin.program import (
    ROW_ID,
    Careful,
    CommandGroup,
)
from xbus.admin.signatures import LIMIT, REASON, YES, CommandBus, argument, command, confirm, option, shown
from xbus.broker.journal.log.slices import parse_start, read_start
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
    with bus.reading() as connection:
        found = list_readers(connection)
    output.listing(map(of_reader, found), (_row(each, output.now) for each in found), "No readers.")


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
        output.objects([{**of_reader(status), **told}])
        return
    click.echo("\n".join(output.table([_row(status, output.now)])))
    click.echo("\n".join(output.block("Ranges", [_range_row(each, output) for each in status.ranges])))
    if moves:
        click.echo("\n".join(output.block("History", [_move_row(each, output) for each in moves])))


@command(reader, kind=Careful)
def move(
    bus: CommandBus,
    name: str = NAME,
    place: str = argument(),
    range_id: int | None = option("Move only this range.", ROW_ID, "--range", metavar="RANGE"),
    reason: str = REASON,
    dry_run: bool = option("Show what would be moved, and move nothing."),
    yes: bool = YES,
) -> None:
    """Have the reader NAME go on at PLACE: a position, a moment, head or oldest.

    Programs that read now lose their batches: what they settle late is refused, and they go on at the new place.
    """
    start = parse_start(place)
    with bus.reading() as connection:
        entry = find_reader(connection, name)
        target = read_start(connection, start)
        (status,) = list_readers(connection, entry.name)
    chosen = [each for each in status.ranges if range_id in (None, each.range.id)]
    click.echo(f"{counted(len(chosen), 'range')} of {name} would go on at {target}:")
    for each in chosen:
        click.echo(f"  range {each.range.id} is at {each.range.place}")
    if dry_run:
        return
    confirm(f"Move {name}?", unless=yes)
    with bus.writing() as connection:
        _tell_moves(people.move(connection, name, start, bus.decision(reason), range_id))


@command(reader, kind=Careful)
def undo(
    bus: CommandBus,
    name: str = NAME,
    act: str | None = option("Undo this act of the history; the newest by default.", metavar="ACT"),
    reason: str = REASON,
    yes: bool = YES,
) -> None:
    """Put the reader NAME back to where it stood before its last checkpoint or move that is not undone yet.

    The history of xbus reader show names the acts.
    """
    with bus.reading() as connection:
        find_reader(connection, name)
        chosen = None if act is None else people.resolve_act(connection, name, act)
    confirm(f"Have {name} read again what it has settled?", unless=yes)
    with bus.writing() as connection:
        _tell_moves(people.undo(connection, name, bus.decision(reason), chosen))


@command(reader)
def split(
    bus: CommandBus, name: str = NAME, range_id: int = argument(ROW_ID, metavar="RANGE"), reason: str = REASON
) -> None:
    """Cut RANGE of the reader NAME into two halves, so that two programs can read them.

    Both begin where the range stands. A batch that is out is delivered again, in two parts.
    """
    with bus.writing() as connection:
        made = people.split(connection, name, range_id, bus.decision(reason))
    click.echo(f"Range {range_id} is split into {made[0].id} and {made[1].id}.")


@command(reader)
def merge(
    bus: CommandBus,
    name: str = NAME,
    range_ids: Sequence[int] = argument(ROW_ID, required=True, metavar="RANGE..."),
    reason: str = REASON,
) -> None:
    """Make one range of neighbours of the reader NAME, so that one program reads them.

    Each part goes on where it stands. Batches that are out are delivered again, as one.
    """
    with bus.writing() as connection:
        (made,) = people.merge(connection, name, range_ids, bus.decision(reason))
    click.echo(f"Ranges {', '.join(map(str, range_ids))} are merged into {made.id}.")


def _tell_moves(moves: Sequence[RangeMove]) -> None:
    for each in moves:
        click.echo(f"Range {each.before.id} goes on at {each.after.place}; it was at {each.before.place}.")


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
