"""``xbus type list``: how many events of each type the journal has."""

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import click

from xbus.admin.output import moment, one_json
from xbus.admin.program import config_option, database_url, json_option
from xbus.admin.table import table
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.event_types import count_types
from xbus.clock import SystemClock

HEADS = ("TYPE", "EVENTS", "ITEMS", "LAST HOUR", "NEWEST")


@click.group()
def type() -> None:
    """Show the event types."""


@type.command("list")
@config_option
@json_option("event type")
def list_(config_path: Path | None, as_json: bool) -> None:
    """Show each event type in use: how many events and items of it the journal has, and when the newest was sealed.

    The counts include events that were archived, and some that retention has removed a short while ago. LAST HOUR is an
    estimate of the events that were sealed within the last hour.
    """
    with reading(database_url(config_path)) as connection:
        found = count_types(connection, SystemClock().now() - timedelta(hours=1))
    if as_json:
        click.echo("".join(f"{one_json(asdict(each))}\n" for each in found.types), nl=False)
        return
    rows = [(each.name, each.events, each.items, each.recent, moment(each.newest_at)) for each in found.types]
    click.echo("\n".join(table(HEADS, rows)) if rows else "No event types.")
    if found.upto < found.head:
        click.echo(f"Counted up to position {found.upto:,} of {found.head:,}: the broker still lists the rest.")
