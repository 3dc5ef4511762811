"""``xbus export``."""

from pathlib import Path

import click

from xbus.admin import bus_file
from xbus.admin.program import config_option, database_url
from xbus.broker.journal.configuration import read_stored
from xbus.broker.journal.database.connection import reading


@click.command()
@config_option
def export(config_path: Path | None) -> None:
    """Write the bus as a file to standard output.

    The file has everything but passwords. If you apply it unchanged, nothing changes.
    """
    with reading(database_url(config_path)) as connection:
        stored = read_stored(connection)
    click.echo(bus_file.write(stored.in_use), nl=False)
