"""``xbus pause``, ``resume`` and ``drain``: nothing new begins for a while, and nothing is lost."""

import shlex
import time
from datetime import datetime
from pathlib import Path

import click

from xbus.admin.arguments import OF_KIND, Duration, Until
from xbus.admin.output import counted
from xbus.admin.program import Careful, config_option, database_url, reason_option
from xbus.admin.progress import tell
from xbus.admin.repair.moves import decision_of
from xbus.broker.journal.configuration import pausing
from xbus.broker.journal.database.connection import connected, writing
from xbus.broker.journal.operations.under_way import UnderWay, read_under_way
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.clock import SystemClock
from xbus.ending import printable
from xbus.errors import TimedOut

kind_argument = click.argument("kind", type=click.Choice([kind.value for kind in PauseKind]), metavar="KIND")
"""The kind of what is paused."""

until_option = click.option(
    "--until",
    type=Until(),
    metavar="2h|MOMENT",
    help="When the pause ends: so long from now, or at this moment, in UTC unless it says otherwise.",
)


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


LOOK_SECONDS = 0.5
"""Seconds between looks at what is under way. Smaller ends the command sooner and costs reads."""


@click.command(cls=Careful)
@config_option
@kind_argument
@click.argument("name", type=OF_KIND)
@reason_option
@until_option
@click.option("--timeout", type=Duration(), metavar="5min", help="Wait no longer than this; the pause stays.")
def drain(
    config_path: Path | None, kind: str, name: str, reason: str, until: datetime | None, timeout: float | None
) -> None:
    """Pause a role, service, type or emitter, as KIND says, and wait until what is under way has ended.

    \b
    role, service  until its recipients have nothing any more
    type, emitter  until its envelopes that are open are ended

    \b
    Exit codes:
      0  nothing is under way, and nothing begins until it is resumed
      3  it was still under way after --timeout
    """
    url = database_url(config_path)
    decision = decision_of(SystemClock(), reason)
    with writing(url) as connection:
        paused = pausing.pause(connection, PauseKind(kind), name, decision, until)
    tell(f"The {paused.told}.")
    _wait(url, paused, timeout)
    again = f"xbus resume {kind} {shlex.quote(name)}"
    click.echo(f"Nothing of {paused.kind.told} {name} is under way any more. To resume it: {again}")


def _wait(url: str, paused: PauseEntry, timeout: float | None) -> None:
    clock = SystemClock()
    began, told = clock.monotonic(), ""
    with connected(url) as connection:
        while True:
            with connection.begin():
                found = read_under_way(connection, paused, clock.now())
            if found is not None and not found:
                return
            if timeout is not None and clock.monotonic() - began >= timeout:
                raise _still(paused, found, timeout)
            if found is not None and _words(found) != told:
                told = _words(found)
                tell(f"Still under way: {told}.")
            time.sleep(LOOK_SECONDS)


def _words(found: UnderWay) -> str:
    if not found.envelopes:
        return f"the broker has not noted yet that {', '.join(found.unpaused)} may get nothing new"
    return counted(found.envelopes, "envelope")


def _still(paused: PauseEntry, found: UnderWay | None, timeout: float) -> TimedOut:
    under_way = "it is not known yet" if found is None else _words(found)
    return TimedOut(
        f"{paused.kind.told} {paused.name} is not drained after {timeout:g} s: {under_way}",
        "see xbus recipient list and xbus envelope list; it stays paused: give the command again to wait on",
        code="not_drained",
    )
