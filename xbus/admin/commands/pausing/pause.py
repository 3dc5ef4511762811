"""``xbus pause``."""

import shlex
from datetime import datetime
from pathlib import Path

import click

from xbus.admin.commands.pausing.options import kind_argument, until_option
from xbus.admin.names import OF_KIND
from xbus.admin.program import Careful, config_option, database_url, reason_option
from xbus.admin.repair.moves import decision_of
from xbus.broker.journal.configuration import pausing
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.writes import PauseKind
from xbus.clock import SystemClock
from xbus.ending import printable


@click.command(cls=Careful)
@config_option
@kind_argument
@click.argument("name", type=OF_KIND)
@reason_option
@until_option
def pause(config_path: Path | None, kind: str, name: str, reason: str, until: datetime | None) -> None:
    """Begin nothing new with a role, service, type or emitter, as KIND says.

    \b
    role, service  recipients get nothing new; all that they are owed is kept
    type, emitter  new events or envelopes are refused as paused; what is open may be ended

    Work under way goes on. The broker knows of it within two seconds, and after a restart.
    """
    decision = decision_of(SystemClock(), reason)
    with writing(database_url(config_path)) as connection:
        paused = pausing.pause(connection, PauseKind(kind), name, decision, until)
    click.echo(printable(f"The {paused.told}."))
    click.echo(f"To resume it: xbus resume {kind} {shlex.quote(name)}")
