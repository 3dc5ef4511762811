"""Having the bus match a bus file."""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from xbus.admin.bus_file.change import Decisions, PlannedChange, apply_change, plan_change
from xbus.admin.replay.sending_again import unsent
from xbus.broker.journal.configuration.owed import Owed
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.people import Right
from xbus.errors import ConfigurationError, Refused
from xbus.monitor.actions.action import Action, asked
from xbus.monitor.bus import BusAccess
from xbus.monitor.people.visitor import Visitor


class ApplyBusFile(Action):
    """Change the bus to match a bus file, all of it or nothing.

    ``version`` is that of the configuration when somebody looked at the plan; the bus refuses to apply it to another.
    """

    path = "configuration/apply"
    title = "Apply"
    right: ClassVar[Right] = Right.MANAGER

    file: Annotated[str, StringConstraints(strip_whitespace=False), asked("text", "Bus file")] = ""
    prune: Annotated[bool, asked("check", "Remove what the file does not name")] = False
    owed: Annotated[
        Owed | None,
        asked(
            "choice",
            "What is owed",
            "What becomes of envelopes that are owed where no way leads any more.",
            choices=[owed.value for owed in Owed],
        ),
    ] = None
    to: Annotated[str | None, asked("line", "To", "The role that gets what is rerouted.", max_length=4000)] = None
    version: int | None = Field(default=None, ge=0, le=2**53)

    def command(self) -> Sequence[str]:
        owed = ["--owed", self.owed.value] if self.owed else []
        to = ["--to", self.to] if self.to else []
        return ["xbus", "apply", *(["--prune"] if self.prune else []), *owed, *to, "FILE"]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        planned = bus.read(self.plan)
        for problem in planned.problems:
            yield f"Line {problem.line}: {problem.sentence}."
        for change in planned.plan.changes:
            yield f"{change}."
            yield from (f"{owed}." for owed in planned.owed_by(change))
        for change in planned.plan.programs:
            yield f'To say what the bot "{change.name}" runs takes the right {Right.PROGRAMMER}.'

    def plan(self, connection: Connection) -> PlannedChange:
        """Compare the file with the bus.

        Raises:
            ConfigurationError: no role can get what shall be rerouted (``no_heir``).
        """
        return plan_change(connection, self.file.encode(), self._decisions)

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            planned = self.plan(connection)
            self._check(planned)
            if planned.plan.programs:
                visitor.check(Right.PROGRAMMER)
            applied = apply_change(connection, planned, self._decisions, bus.now())
        yield from applied.sentences()
        yield from map(unsent, applied.histories)
        if not applied.plan.changes:
            yield "Nothing was changed: the bus is as the file says."

    def _check(self, planned: PlannedChange) -> None:
        if planned.problems:
            told = "; ".join(f"line {problem.line}: {problem.sentence}" for problem in planned.problems[:20])
            raise Refused(f"the bus file can't be applied ({told})", "correct it", code="bad_bus_file")
        if self.version is not None and self.version != planned.plan.version:
            raise ConfigurationError(
                "someone else has changed the configuration in the meantime",
                "look at the changes again",
                code="stale_plan",
            )
        if planned.arrears and self.owed is None:
            raise Refused(
                "envelopes are still owed where no way leads any more",
                "decide what becomes of them: keep, drop or reroute",
                code="owed_undecided",
            )

    @property
    def _decisions(self) -> Decisions:
        return Decisions(self.prune, self.owed, self.to)
