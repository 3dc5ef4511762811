"""Pausing, draining and resuming roles, services, event types and emitters."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, ClassVar

from pydantic import Field

from xbus.admin.output import moment
from xbus.admin.repair.moves import decision_of
from xbus.broker.journal.configuration import pausing
from xbus.broker.journal.people import Right
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.monitor.actions.action import UNSAID, Action, OptionalReason, Reason, asked
from xbus.monitor.bus import BusAccess
from xbus.monitor.people.visitor import Visitor
from xbus.monitor.reading import until_of

EFFECTS = {
    PauseKind.ROLE: "Its recipients get nothing new. All that they are owed is kept.",
    PauseKind.SERVICE: "No recipient of its roles gets anything new. All that they are owed is kept.",
    PauseKind.TYPE: "New events of the type are refused as paused. What is open may be ended.",
    PauseKind.EMITTER: "New envelopes of the emitter are refused as paused. What is open may be ended.",
    PauseKind.BOT: "None of its runs begins. Its times count as missed. What runs goes on.",
}

Until = Annotated[
    str,
    asked("line", "Until", "When the pause ends: 2h for two hours from now, or a date and time in UTC.", max_length=64),
]


class _OfSubject(Action):
    """An action on one thing that can be paused.

    Args:
        kind: the kind of the thing.
        name: its name or login.
    """

    right: ClassVar[Right] = Right.OPERATOR

    kind: PauseKind
    name: str = Field(max_length=4000)

    @property
    def told(self) -> str:
        """The thing in a sentence."""
        return f'{self.kind.told} "{self.name}"'

    def check(self, bus: BusAccess) -> None:
        """Let the action pass if the thing is in use.

        Raises:
            Refused: nothing of that kind has this name (``unknown_login``, ``unknown_name``).
        """
        with bus.reading() as connection:
            pausing.find_subject(connection, self.kind, self.name)


class Pause(_OfSubject):
    """Begin nothing new with a role, service, event type or emitter."""

    path = "pause"
    title = "Pause"

    reason: Reason
    until: Until = ""

    def command(self) -> Sequence[str]:
        return ["xbus", "pause", *self._words()]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        self.check(bus)
        yield f"Pause the {self.told}."
        yield EFFECTS[self.kind]
        yield "Work under way goes on."

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        paused = self._pause(bus, visitor, until_of(self.until))
        yield f"The {paused.told}."
        yield "The broker knows of it within two seconds, and after a restart."

    def _words(self) -> list[str]:
        until = ["--until", self.until] if self.until else []
        return [self.kind.value, self.name, "--reason", self.reason, *until]

    def _pause(self, bus: BusAccess, visitor: Visitor, until: datetime | None) -> PauseEntry:
        with bus.writing(visitor) as connection:
            return pausing.pause(connection, self.kind, self.name, decision_of(bus.clock, self.reason), until)


class DrainAndPause(Pause):
    """Pause a role, service, event type or emitter, and watch until what is under way has ended."""

    path = "drain"
    title = "Drain"

    def command(self) -> Sequence[str]:
        return ["xbus", "drain", *self._words()]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        self.check(bus)
        yield f"Pause the {self.told}, and wait until what is under way has ended."
        yield EFFECTS[self.kind]
        yield "Its page shows what is still under way."

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        paused = self._pause(bus, visitor, until_of(self.until))
        yield f"The {paused.told}."
        yield "Its page shows what is still under way, and tells when nothing is."


class ResumePaused(_OfSubject):
    """Let a paused role, service, event type or emitter go on."""

    path = "resume"
    title = "Resume"

    reason: OptionalReason = ""

    def command(self) -> Sequence[str]:
        reason = ["--reason", self.reason] if self.reason and self.reason != UNSAID else []
        return ["xbus", "resume", self.kind.value, self.name, *reason]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        with bus.reading() as connection:
            paused = pausing.find_pause(connection, self.kind, self.name)
        yield f"The {paused.told}, since {moment(paused.since)}."
        yield "Let it go on. The broker brings what waited."

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            pausing.resume(connection, self.kind, self.name, decision_of(bus.clock, self.reason))
        yield f"The {self.told} is resumed."
