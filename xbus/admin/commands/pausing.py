"""``xbus pause``, ``resume`` and ``drain``: nothing new begins for a while, and nothing is lost."""

import shlex
import time
from abc import ABC
from collections.abc import Iterator
from datetime import datetime

import click

from xbus.admin.arguments import OF_KIND, OPTIONAL_REASON, REASON, Duration, Until
from xbus.admin.output import counted, moment
from xbus.admin.program import Careful
from xbus.admin.progress import tell
from xbus.admin.signatures import BusAction, CommandBus, argument, command, command_of, option
from xbus.broker.journal.configuration import pausing
from xbus.broker.journal.database.connection import connected
from xbus.broker.journal.operations.coming import UnderWay, read_under_way
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.errors import TimedOut
from xbus.rights import Right

UNTIL = option(
    "When the pause ends: so long from now, or at this moment, in UTC unless it says otherwise.",
    Until(),
    title="Until",
    longest=64,
    metavar="2h|MOMENT",
)

EFFECTS = {
    PauseKind.ROLE: "Its recipients get nothing new. All that they are owed is kept.",
    PauseKind.SERVICE: "No recipient of its roles gets anything new. All that they are owed is kept.",
    PauseKind.TYPE: "New events of the type are refused as paused. What is open may be ended.",
    PauseKind.EMITTER: "New envelopes of the emitter are refused as paused. What is open may be ended.",
    PauseKind.BOT: "None of its runs begins. Its times count as missed. What runs goes on.",
}


class SubjectAction(BusAction, ABC):
    """An action on one thing that can be paused."""

    right = Right.OPERATOR

    kind: PauseKind = argument(metavar="KIND")
    name: str = argument(OF_KIND)

    @property
    def subject(self) -> str:
        """The thing in a sentence."""
        return f"{self.kind.told} {self.name}"


class Pause(SubjectAction):
    """Begin nothing new with a role, service, type or emitter, as KIND says.

    \b
    role, service  recipients get nothing new; all that they are owed is kept
    type, emitter  new events or envelopes are refused as paused; what is open may be ended

    Work under way goes on. The broker knows of it within two seconds, and after a restart.
    """

    path = "pause"
    title = "Pause"
    words = "pause"

    reason: str = REASON
    until: datetime | None = UNTIL

    def preview(self, bus: CommandBus) -> Iterator[str]:
        bus.read(lambda connection: pausing.find_subject(connection, self.kind, self.name))
        yield f'Pause the {self.kind.told} "{self.name}".'
        yield EFFECTS[self.kind]
        yield "Work under way goes on. The broker knows of it within two seconds, and after a restart."

    def begin(self, bus: CommandBus) -> PauseEntry:
        """Note the pause."""
        with bus.writing() as connection:
            return pausing.pause(connection, self.kind, self.name, bus.decision(self.reason), self.until)

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        yield f"The {self.begin(bus).told}."
        yield f"To resume it: {self.way_back}"

    @property
    def way_back(self) -> str:
        """The command that resumes it."""
        return f"xbus resume {self.kind} {shlex.quote(self.name)}"


class ResumePaused(SubjectAction):
    """Let a paused role, service, type or emitter go on, as KIND says.

    The broker knows of it within two seconds, and brings what waited.
    """

    path = "resume"
    title = "Resume"
    words = "resume"

    reason: str = OPTIONAL_REASON

    def preview(self, bus: CommandBus) -> Iterator[str]:
        paused = bus.read(lambda connection: pausing.find_pause(connection, self.kind, self.name))
        yield f"The {paused.told}, since {moment(paused.since)}."
        yield "Let it go on. The broker brings what waited."

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            pausing.resume(connection, self.kind, self.name, bus.decision(self.reason))
        yield f"The {self.subject} is resumed."


pause = command_of(Pause, kind=Careful)
resume = command_of(ResumePaused)

LOOK_SECONDS = 0.5
"""Seconds between looks at what is under way. Smaller ends the command sooner and costs reads."""


class DrainAndPause(Pause):
    """Pause a role, service, event type or emitter, and watch until what is under way has ended."""

    path = "drain"
    title = "DrainAndPause"
    words = "drain"

    def preview(self, bus: CommandBus) -> Iterator[str]:
        yield from super().preview(bus)
        yield "Its page shows what is still under way."

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        yield f"The {self.begin(bus).told}."
        yield "Its page shows what is still under way, and tells when nothing is."


@command(kind=Careful)
def drain(
    bus: CommandBus,
    kind: PauseKind = DrainAndPause.kind,
    name: str = DrainAndPause.name,
    reason: str = REASON,
    until: datetime | None = DrainAndPause.until,
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
    asked = DrainAndPause(kind=kind, name=name, reason=reason, until=until)
    paused = asked.begin(bus)
    tell(f"The {paused.told}.")
    _wait(bus, paused, timeout)
    click.echo(f"Nothing of {asked.subject} is under way any more. To resume it: {asked.way_back}")


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
