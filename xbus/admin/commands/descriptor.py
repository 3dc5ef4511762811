"""``xbus descriptor``."""

from pathlib import Path

import click

from xbus.admin.objects import of_descriptor
from xbus.admin.output import Output, name_column
from xbus.admin.program import CommandGroup, config_option, database_url, output_option
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.descriptors import list_descriptors, read_descriptor
from xbus.errors import Refused


@click.group(cls=CommandGroup)
def descriptor() -> None:
    """Show the input descriptors of the database."""


@descriptor.command("list")
@config_option
@output_option("descriptor")
def list_(config_path: Path | None, output: Output) -> None:
    """Show the names, types and sizes of the descriptors."""
    with reading(database_url(config_path)) as connection:
        found = list_descriptors(connection)
    rows = [{name_column("NAME"): each.name, "MIMETYPE": each.mimetype, "BYTES": each.size} for each in found]
    output.listing(map(of_descriptor, found), rows, "No descriptors.")


@descriptor.command()
@config_option
@click.argument("name")
def show(config_path: Path | None, name: str) -> None:
    """Write the content of one descriptor to standard output, unchanged."""
    with reading(database_url(config_path)) as connection:
        content = read_descriptor(connection, name)
    if content is None:
        raise Refused(f'there is no descriptor "{name}"', "see xbus descriptor list", code="descriptor_unknown")
    click.echo(content, nl=False)
