"""``xbus type list``: how many events of each type the journal has."""

from datetime import timedelta
from pathlib import Path

import click

from xbus.admin.objects import of_type
from xbus.admin.output import Output, name_column
from xbus.admin.program import CommandGroup, config_option, database_url, output_option
from xbus.admin.progress import watch_option
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.event_types import count_types
from xbus.clock import SystemClock

HEADS = (name_column("TYPE"), "EVENTS", "ITEMS", "LAST HOUR", "NEWEST")


@click.group(cls=CommandGroup)
def type() -> None:
    """Show the event types."""


@type.command("list")
@config_option
@watch_option
@output_option("event type")
def list_(config_path: Path | None, output: Output) -> None:
    """Show each event type in use: how many events and items of it the journal has, and the age of the newest.

    The counts include events that were archived, and some that retention has removed a short while ago. LAST HOUR is an
    estimate of the events that were sealed within the last hour.
    """
    now = SystemClock().now()
    with reading(database_url(config_path)) as connection:
        found = count_types(connection, now - timedelta(hours=1))
    if output.as_json:
        output.objects(map(of_type, found.types))
        return
    rows = [(each.name, each.events, each.items, each.recent, output.when(each.newest_at, now)) for each in found.types]
    click.echo("\n".join(output.table(HEADS, rows)) if rows else "No event types.")
    if found.upto < found.head:
        click.echo(f"Counted up to position {found.upto} of {found.head}: the broker still lists the rest.")
