"""``xbus pause``, ``resume`` and ``drain``: nothing new begins for a while, and nothing is lost."""

import shlex
import time
from datetime import datetime

import click

from xbus.admin.arguments import OF_KIND, Duration, Until
from xbus.admin.output import counted
from xbus.admin.program import Careful
from xbus.admin.progress import tell
from xbus.admin.signatures import OPTIONAL_REASON, REASON, CommandBus, argument, command, option
from xbus.broker.journal.configuration import pausing
from xbus.broker.journal.database.connection import connected
from xbus.broker.journal.operations.under_way import UnderWay, read_under_way
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.ending import printable
from xbus.errors import TimedOut

KIND = argument(metavar="KIND")
"""The kind of what is paused."""

UNTIL = option(
    "When the pause ends: so long from now, or at this moment, in UTC unless it says otherwise.",
    Until(),
    metavar="2h|MOMENT",
)


@command(kind=Careful)
def pause(
    bus: CommandBus,
    kind: PauseKind = KIND,
    name: str = argument(OF_KIND),
    reason: str = REASON,
    until: datetime | None = UNTIL,
) -> None:
    """Begin nothing new with a role, service, type or emitter, as KIND says.

    \b
    role, service  recipients get nothing new; all that they are owed is kept
    type, emitter  new events or envelopes are refused as paused; what is open may be ended

    Work under way goes on. The broker knows of it within two seconds, and after a restart.
    """
    decision = bus.decision(reason)
    with bus.writing() as connection:
        paused = pausing.pause(connection, kind, name, decision, until)
    click.echo(printable(f"The {paused.told}."))
    click.echo(f"To resume it: xbus resume {kind} {shlex.quote(name)}")


@command()
def resume(
    bus: CommandBus, kind: PauseKind = KIND, name: str = argument(OF_KIND), reason: str = OPTIONAL_REASON
) -> None:
    """Let a paused role, service, type or emitter go on, as KIND says.

    The broker knows of it within two seconds, and brings what waited.
    """
    decision = bus.decision(reason)
    with bus.writing() as connection:
        pausing.resume(connection, kind, name, decision)
    click.echo(f"The {kind.told} {name} is resumed.")


LOOK_SECONDS = 0.5
"""Seconds between looks at what is under way. Smaller ends the command sooner and costs reads."""


@command(kind=Careful)
def drain(
    bus: CommandBus,
    kind: PauseKind = KIND,
    name: str = argument(OF_KIND),
    reason: str = REASON,
    until: datetime | None = UNTIL,
    timeout: float | None = option("Wait no longer than this; the pause stays.", Duration(), metavar="5min"),
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
    decision = bus.decision(reason)
    with bus.writing() as connection:
        paused = pausing.pause(connection, kind, name, decision, until)
    tell(f"The {paused.told}.")
    _wait(bus, paused, timeout)
    again = f"xbus resume {kind} {shlex.quote(name)}"
    click.echo(f"Nothing of {paused.kind.told} {name} is under way any more. To resume it: {again}")


def _wait(bus: CommandBus, paused: PauseEntry, timeout: float | None) -> None:
    clock = bus.clock
    began, told = clock.monotonic(), ""
    with connected(bus.url) as connection:
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
