"""``xbus replay``."""

from datetime import datetime

import click

from xbus.admin.arguments import OPTIONAL_REASON, PLACE, ROLE, TYPE
from xbus.admin.output import counted
from xbus.admin.program import FiniteRange
from xbus.admin.replay import FIRST, Preview, ReplayRequest, count, find_part, told
from xbus.admin.replay import carry_out as send
from xbus.admin.signatures import YES, CommandBus, command, confirm, option
from xbus.broker.journal.configuration.names import LONGEST_NAME, is_name
from xbus.errors import Refused


def _name(_: click.Context, __: click.Parameter, text: str) -> str:
    if not is_name(text):
        raise click.BadParameter(f"give a text of 1 to {LONGEST_NAME} printable characters without blanks around it")
    return text


@command()
def replay(
    bus: CommandBus,
    type_name: str = option("Events of this type.", TYPE, "--type", required=True),
    role: str = option("To this consumer role, and to nobody else.", ROLE, required=True),
    since: datetime | int = option(
        "The start: a date or time in UTC or with its zone, 2d (ago), a position, or oldest.",
        PLACE,
        "--from",
        required=True,
    ),
    until: datetime | int | None = option(
        "The end: a moment, not included, or a position, included; by default now.", PLACE, "--to"
    ),
    unreached: bool = option("Only events that had no node for the role's service when they were sent."),
    replay_name: str = option(
        "Send also what was replayed to the role before. TEXT names this time: one name sends nothing twice.",
        None,
        "--again",
        default=FIRST,
        callback=_name,
    ),
    without_archived: bool = option("Leave out archived envelopes."),
    rate: float | None = option(
        "Send at most so many envelopes a second, so that others go on as before.",
        FiniteRange(0, min_open=True),
        metavar="NUMBER",
    ),
    reason: str = OPTIONAL_REASON,
    dry_run: bool = option("Only show the numbers; send nothing."),
    yes: bool = YES,
) -> None:
    """Send events of one type to one consumer role again, by the present graph of the type.

    They arrive as new envelopes over the same stored items, in their old order, at the end of the log. The same
    command sends nothing twice: after an interruption it goes on.
    """
    url = bus.url
    wanted = ReplayRequest(type_name, role, *find_part(url, since, until), unreached, replay_name, rate)
    found = count(url, wanted)
    _check(wanted, found, without_archived)
    click.echo("\n".join(told(wanted, found)))
    if dry_run or not found.envelopes:
        return
    confirm("Send them?", unless=yes)
    send(url, wanted, found, bus.decision(reason))


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
