"""``xbus reader`` shows how far readers are, and moves them."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from xbus.admin.arguments import READER
from xbus.admin.objects import of_move, of_range, of_reader
from xbus.admin.output import Output, Row, age, counted, name_column
from xbus.admin.program import (
    ROW_ID,
    Careful,
    CommandGroup,
    config_option,
    confirm,
    database_url,
    limit_option,
    output_option,
    reason_option,
)
from xbus.admin.progress import watch_option
from xbus.admin.repair.moves import decision_of
from xbus.broker.journal.database.connection import reading, writing
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
from xbus.clock import SystemClock

name_argument = click.argument("name", type=READER)
yes_option = click.option("--yes", is_flag=True, help="Do it without asking.")


@click.group(cls=CommandGroup)
def reader() -> None:
    """Show how far readers are, and move them."""


@reader.command("list")
@config_option
@watch_option
@output_option("reader")
def list_(config_path: Path | None, output: Output) -> None:
    """Show each reader: where it is, and how far it lags behind.

    PLACE is that of the range that is furthest behind. LAG counts the events of its types from there on, OLDEST is the
    age of the first of them. SKIPPED counts envelopes that retention removed before the reader had read them.
    """
    with reading(database_url(config_path)) as connection:
        found = list_readers(connection)
    output.listing(map(of_reader, found), (_row(each, output.now) for each in found), "No readers.")


@reader.command()
@config_option
@name_argument
@limit_option
@output_option()
def show(config_path: Path | None, name: str, limit: int, output: Output) -> None:
    """Show the ranges of a reader, who reads them, and the last moves of its places.

    BEHIND counts events of its types from the place of a range on, up to 10,000; other ranges read some of them.
    """
    with reading(database_url(config_path)) as connection:
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


@reader.command(cls=Careful)
@config_option
@name_argument
@click.argument("place")
@click.option("--range", "range_id", type=ROW_ID, metavar="RANGE", help="Move only this range.")
@reason_option
@click.option("--dry-run", is_flag=True, help="Show what would be moved, and move nothing.")
@yes_option
def move(
    config_path: Path | None, name: str, place: str, range_id: int | None, reason: str, dry_run: bool, yes: bool
) -> None:
    """Have the reader NAME go on at PLACE: a position, a moment, head or oldest.

    Programs that read now lose their batches: what they settle late is refused, and they go on at the new place.
    """
    url = database_url(config_path)
    start = parse_start(place)
    with reading(url) as connection:
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
    with writing(url) as connection:
        _tell_moves(people.move(connection, name, start, decision_of(SystemClock(), reason), range_id))


@reader.command(cls=Careful)
@config_option
@name_argument
@click.option("--act", metavar="ACT", help="Undo this act of the history; the newest by default.")
@reason_option
@yes_option
def undo(config_path: Path | None, name: str, act: str | None, reason: str, yes: bool) -> None:
    """Put the reader NAME back to where it stood before its last checkpoint or move that is not undone yet.

    The history of xbus reader show names the acts.
    """
    url = database_url(config_path)
    with reading(url) as connection:
        find_reader(connection, name)
        chosen = None if act is None else people.resolve_act(connection, name, act)
    confirm(f"Have {name} read again what it has settled?", unless=yes)
    with writing(url) as connection:
        _tell_moves(people.undo(connection, name, decision_of(SystemClock(), reason), chosen))


@reader.command()
@config_option
@name_argument
@click.argument("range_id", type=ROW_ID, metavar="RANGE")
@reason_option
def split(config_path: Path | None, name: str, range_id: int, reason: str) -> None:
    """Cut RANGE of the reader NAME into two halves, so that two programs can read them.

    Both begin where the range stands. A batch that is out is delivered again, in two parts.
    """
    with writing(database_url(config_path)) as connection:
        made = people.split(connection, name, range_id, decision_of(SystemClock(), reason))
    click.echo(f"Range {range_id} is split into {made[0].id} and {made[1].id}.")


@reader.command()
@config_option
@name_argument
@click.argument("range_ids", type=ROW_ID, nargs=-1, required=True, metavar="RANGE...")
@reason_option
def merge(config_path: Path | None, name: str, range_ids: Sequence[int], reason: str) -> None:
    """Make one range of neighbours of the reader NAME, so that one program reads them.

    Each part goes on where it stands. Batches that are out are delivered again, as one.
    """
    with writing(database_url(config_path)) as connection:
        (made,) = people.merge(connection, name, range_ids, decision_of(SystemClock(), reason))
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
