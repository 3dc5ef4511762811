"""``xbus type list``: how many events of each type the journal has."""

from datetime import timedelta

import click

from xbus.admin.objects import of_type
from xbus.admin.output import Output, name_column
from xbus.admin.program import CommandGroup
from xbus.admin.signatures import CommandBus, command, shown
from xbus.broker.journal.operations.event_types import count_types


@click.group(cls=CommandGroup)
def type() -> None:
    """Show the event types."""


@command(type)
def list_(bus: CommandBus, output: Output = shown("event type", watch=True)) -> None:
    """Show each event type in use: how many events and items of it the journal has, and the age of the newest.

    The counts include events that were archived, and some that retention has removed a short while ago. LAST HOUR is an
    estimate of the events that were sealed within the last hour.
    """
    found = bus.read(lambda connection: count_types(connection, output.now - timedelta(hours=1)))
    rows = [
        {
            name_column("TYPE"): each.name,
            "EVENTS": each.events,
            "ITEMS": each.items,
            "LAST HOUR": each.recent,
            "NEWEST": output.when(each.newest_at),
        }
        for each in found.types
    ]
    more = None
    if found.upto < found.head:
        more = f"Counted up to position {found.upto} of {found.head}: the broker still lists the rest."
    output.listing(found.types, of_type, rows, "No event types.", more)
