"""``xbus replay``."""

from datetime import datetime
from pathlib import Path

import click

from xbus.admin.arguments import ROLE, TYPE, PlaceOption
from xbus.admin.output import counted
from xbus.admin.program import FiniteRange, config_option, confirm, database_url
from xbus.admin.repair.moves import decision_of
from xbus.admin.replay import FIRST, Preview, ReplayRequest, count, find_part, told
from xbus.admin.replay import carry_out as send
from xbus.broker.journal.configuration.names import LONGEST_NAME, is_name
from xbus.clock import SystemClock
from xbus.errors import Refused


def _name(_: click.Context, __: click.Parameter, text: str) -> str:
    if not is_name(text):
        raise click.BadParameter(f"give a text of 1 to {LONGEST_NAME} printable characters without blanks around it")
    return text


@click.command()
@config_option
@click.option("--type", "type_name", type=TYPE, required=True, metavar="NAME", help="Events of this type.")
@click.option("--role", type=ROLE, required=True, metavar="LOGIN", help="To this consumer role, and to nobody else.")
@click.option(
    "--from",
    "since",
    required=True,
    type=PlaceOption(),
    metavar="WHEN",
    help="The start: a date or time in UTC or with its zone, 2d (ago), a position, or oldest.",
)
@click.option(
    "--to",
    "until",
    type=PlaceOption(),
    metavar="WHEN",
    help="The end: a moment, not included, or a position, included; by default now.",
)
@click.option(
    "--unreached", is_flag=True, help="Only events that had no node for the role's service when they were sent."
)
@click.option(
    "--again",
    "replay_name",
    default=FIRST,
    callback=_name,
    metavar="TEXT",
    help="Send also what was replayed to the role before. TEXT names this time: one name sends nothing twice.",
)
@click.option("--without-archived", is_flag=True, help="Leave out archived envelopes.")
@click.option(
    "--rate",
    type=FiniteRange(0, min_open=True),
    metavar="NUMBER",
    help="Send at most so many envelopes a second, so that others go on as before.",
)
@click.option("--reason", default="", metavar="TEXT", help="Why; it is kept.")
@click.option("--dry-run", is_flag=True, help="Only show the numbers; send nothing.")
@click.option("--yes", is_flag=True, help="Don't ask.")
def replay(
    config_path: Path | None,
    type_name: str,
    role: str,
    since: datetime | int,
    until: datetime | int | None,
    unreached: bool,
    replay_name: str,
    without_archived: bool,
    rate: float | None,
    reason: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Send events of one type to one consumer role again, by the present graph of the type.

    They arrive as new envelopes over the same stored items, in their old order, at the end of the log. The same
    command sends nothing twice: after an interruption it goes on.
    """
    url = database_url(config_path)
    wanted = ReplayRequest(type_name, role, *find_part(url, since, until), unreached, replay_name, rate)
    found = count(url, wanted)
    _check(wanted, found, without_archived)
    click.echo("\n".join(told(wanted, found)))
    if dry_run or not found.envelopes:
        return
    confirm("Send them?", unless=yes)
    send(url, wanted, found, decision_of(SystemClock(), reason))


def _check(wanted: ReplayRequest, found: Preview, without_archived: bool) -> None:
    if found.archived and not without_archived:
        raise Refused(
            f"the items of {counted(found.archived, 'envelope')} between these places are in an archive",
            "restore those that you need with xbus restore, or leave them out with --without-archived",
            code="envelope_archived",
        )
    if not (found.envelopes or found.sent or found.archived):
        removed = (
            f"; {counted(found.removed, 'envelope')} of any type were removed by retention" if found.removed else ""
        )
        which = " that had no node for its service" if wanted.unreached else ""
        raise Refused(
            f'no event of type "{wanted.type_name}"{which} lies between these places of the log{removed}',
            "xbus envelope list shows when such events came",
            code="nothing_to_replay",
        )
