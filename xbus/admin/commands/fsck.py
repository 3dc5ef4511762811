"""``xbus fsck``."""

from collections.abc import Iterator, Sequence
from itertools import islice

import click

from xbus.admin.objects import JsonObject
from xbus.admin.output import CAUSE, Column, Output, counted, name_column, rows_of
from xbus.admin.progress import shown_on_terminal
from xbus.admin.signatures import CommandBus, command, option, shown
from xbus.broker.journal.database.connection import connected_to_states
from xbus.broker.journal.fsck.examination import examine, steps
from xbus.broker.journal.fsck.faults import Fault
from xbus.ending import REFUSED

HEADS = ("CODE", name_column("TABLE"), Column("ROW", narrows=12), CAUSE)


@command()
def fsck(
    bus: CommandBus,
    most: int = option("Stop after so many faults.", click.IntRange(1), default=1000, show_default=True),
    output: Output = shown("fault"),
) -> None:
    """Examine the journal for damage: compare counts, hashes, references and cursors with its data.

    It reads all of the journal and changes nothing. The broker may run.

    \b
    Exit codes:
      0  nothing is wrong; notes alone are no fault
      1  something is; restore a backup, or ask for help with what it names
      3  the database can't be reached
    """
    with connected_to_states(bus.url) as connection, shown_on_terminal(lambda: steps(connection), "Examining") as tell:
        found = list(islice(examine(connection, tell), most))
    if output.as_json:
        output.objects(map(_of_fault, found))
    else:
        click.echo("\n".join(_told(found, output)))
    if len(found) == most:
        click.echo(f"xbus: stopped after {counted(most, 'fault')}, there may be more: give a larger --most", err=True)
    if not all(fault.is_note for fault in found):
        click.get_current_context().exit(REFUSED)


def _told(found: Sequence[Fault], output: Output) -> Iterator[str]:
    if found:
        cells = ((each.code, each.table or None, each.row or None, each.cause) for each in found)
        yield from output.table(rows_of(HEADS, cells))
    faults = sum(not fault.is_note for fault in found)
    yield f"Found {counted(faults, 'fault')}." if faults else "Nothing is wrong."


def _of_fault(fault: Fault) -> JsonObject:
    return {
        "severity": "note" if fault.is_note else "problem",
        "code": fault.code,
        "table": fault.table or None,
        "row_key": fault.row or None,
        "cause": fault.cause,
    }
