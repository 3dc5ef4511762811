"""The arguments that the commands share: what to pause, until when, and who says so."""

import click

from xbus.admin.moments import Until
from xbus.broker.journal.writes import PauseKind

kind_argument = click.argument("kind", type=click.Choice([kind.value for kind in PauseKind]), metavar="KIND")
"""The kind of what is paused."""

until_option = click.option(
    "--until",
    type=Until(),
    metavar="2h|MOMENT",
    help="When the pause ends: so long from now, or at this moment, in UTC unless it says otherwise.",
)
