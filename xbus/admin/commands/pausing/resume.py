"""``xbus resume``."""

from pathlib import Path

import click

from xbus.admin.commands.pausing.options import kind_argument
from xbus.admin.names import OF_KIND
from xbus.admin.program import config_option, database_url
from xbus.admin.repair.moves import decision_of
from xbus.broker.journal.configuration import pausing
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.writes import PauseKind
from xbus.clock import SystemClock


@click.command()
@config_option
@kind_argument
@click.argument("name", type=OF_KIND)
@click.option("--reason", default="", metavar="TEXT", help="Why; it is kept.")
def resume(config_path: Path | None, kind: str, name: str, reason: str) -> None:
    """Let a paused role, service, type or emitter go on, as KIND says.

    The broker knows of it within two seconds, and brings what waited.
    """
    decision = decision_of(SystemClock(), reason)
    with writing(database_url(config_path)) as connection:
        pausing.resume(connection, PauseKind(kind), name, decision)
    click.echo(f"The {PauseKind(kind).told} {name} is resumed.")
