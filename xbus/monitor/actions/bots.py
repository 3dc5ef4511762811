"""Having bots run now, and releasing those that are slowed down."""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from xbus.admin.output import counted
from xbus.admin.repair.moves import decision_of
from xbus.broker.journal.operations import bots
from xbus.broker.journal.people import Right
from xbus.monitor.actions.action import Action, Reason
from xbus.monitor.bus import BusAccess
from xbus.monitor.people.visitor import Visitor


class FireBot(Action):
    """Have a bot run now, whatever its cron says, or try a run anew that has failed."""

    path = "bots/fire"
    title = "Fire"
    right: ClassVar[Right] = Right.OPERATOR

    name: str = Field(max_length=4000)
    run_id: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None
    reason: Reason

    def command(self) -> Sequence[str]:
        run = [] if self.run_id is None else ["--run", str(self.run_id)]
        return ["xbus", "bot", "fire", self.name, *run, "--reason", self.reason]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        with bus.reading() as connection:
            bots.check_fire(connection, self.name, self.run_id)
            (bot,) = bots.list_bots(connection, bus.now(), self.name)
        which = "a run" if self.run_id is None else f"run {self.run_id} anew"
        yield f"Have {self.name} do {which}: {bot.work}"
        if bot.pause is not None or bot.slowed_until is not None:
            yield f"It is {bot.state}: the run begins when that is over."

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            run_id = bots.fire_bot(connection, self.name, self.run_id, decision_of(bus.clock, self.reason))
        yield f"Run {run_id} of {self.name} is due. Its page shows how it ends."


class ReleaseBot(Action):
    """Let a bot go on that is slowed down, as its trouble is over."""

    path = "bots/release"
    title = "Release"
    right: ClassVar[Right] = Right.OPERATOR

    name: str = Field(max_length=4000)
    reason: Reason

    def command(self) -> Sequence[str]:
        return ["xbus", "bot", "release", self.name, "--reason", self.reason]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        with bus.reading() as connection:
            _, failures = bots.check_release(connection, self.name)
        yield f"{self.name} is slowed down, as {counted(failures, 'attempt')} failed one after another."
        yield "Let it go on at once."

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            failures = bots.release_bot(connection, self.name, decision_of(bus.clock, self.reason))
        yield f"{self.name} goes on, after {counted(failures, 'failure')}."
