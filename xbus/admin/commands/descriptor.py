"""``xbus descriptor``."""

import click

from xbus.admin.objects import of_descriptor
from xbus.admin.output import Output, name_column
from xbus.admin.program import CommandGroup
from xbus.admin.signatures import CommandBus, argument, command, shown
from xbus.broker.journal.operations.descriptors import list_descriptors, read_descriptor
from xbus.errors import Refused


@click.group(cls=CommandGroup)
def descriptor() -> None:
    """Show the input descriptors of the database."""


@command(descriptor)
def list_(bus: CommandBus, output: Output = shown("descriptor")) -> None:
    """Show the names, types and sizes of the descriptors."""
    found = bus.read(list_descriptors)
    rows = [{name_column("NAME"): each.name, "MIMETYPE": each.mimetype, "BYTES": each.size} for each in found]
    output.listing(found, of_descriptor, rows, "No descriptors.")


@command(descriptor)
def show(bus: CommandBus, name: str = argument()) -> None:
    """Write the content of one descriptor to standard output, unchanged."""
    content = bus.read(lambda connection: read_descriptor(connection, name))
    if content is None:
        raise Refused(f'there is no descriptor "{name}"', "see xbus descriptor list", code="descriptor_unknown")
    click.echo(content, nl=False)
