"""Has the bus match a bus file: plans it, with all that is owed because of it, and applies all of it or nothing.

Commands and the monitor share it: each tells the plan in its own way, and asks its person.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from shlex import quote

from xbus.admin.bus_file.reader import LineProblem, read
from xbus.broker.journal import configuration
from xbus.broker.journal.configuration import Change, Plan, Section, logins_without_password, make_plan, read_stored
from xbus.broker.journal.configuration.decisions import decide, heirs
from xbus.broker.journal.configuration.owed import Arrears, Owed, read_arrears
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.sessions import LoginKind
from xbus.broker.journal.replay import NoWay, Unreached, find_unreached

RENAMED = {
    Section.EVENT_TYPE: "Have all emitters send events of type {0} under that name: the former one is refused.",
    Section.ROLE: "Give the program of role {0} its new login. It goes on until it logs in anew.",
    Section.EMITTER: "Give the program of emitter {0} its new login. It goes on until it logs in anew.",
}
"""The work that a renaming leaves for people."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """The answers that a person gave before the question.

    Args:
        prune: whether entries go that the file does not name.
        owed: what becomes of envelopes that are owed where no way leads any more; None to ask.
        to: the role that gets the envelopes of removed roles, with ``Owed.REROUTE``.
    """

    prune: bool = False
    owed: Owed | None = None
    to: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A plan, and the envelopes about which it takes a decision.

    Args:
        problems: the reasons that forbid it, each with its line; with any, nothing is owed because of it.
    """

    plan: Plan
    arrears: Sequence[Arrears]
    problems: Sequence[LineProblem]

    def owed_by(self, change: Change) -> Iterator[Arrears]:
        """Iterate over the backlogs that a change puts in question."""
        return (owed for owed in self.arrears if owed.change == change)


@dataclass(frozen=True, slots=True)
class AppliedChange:
    """A change that was made, and the work that it leaves.

    Args:
        plan: that was applied.
        missing: kind and login of all who can't log in, because nobody has set a password.
        histories: events that new roles want, and that only a replay brings.
    """

    plan: Plan
    missing: Sequence[tuple[LoginKind, str]]
    histories: Sequence[Unreached | NoWay]

    def sentences(self) -> Iterator[str]:
        """Say what was done, and what people have to do now."""
        if self.plan.changes:
            yield f"Applied: the configuration is at version {self.plan.version + 1}."
        for rename in self.plan.renames:
            if rename.section in RENAMED:
                yield RENAMED[rename.section].format(rename.name)
        for kind, login in self.missing:
            yield f"{kind} {login} can't log in yet: xbus password {kind} {quote(login)}"


def plan_change(connection: Connection, content: bytes, decisions: Decisions) -> PlannedChange:
    """Compare a bus file with the bus.

    Args:
        connection: reads the journal.
        content: the bus file, right or wrong.
        decisions: of the person.

    Raises:
        ConfigurationError: no role can get what the person wants rerouted (``no_heir``).
    """
    found = read(content)
    plan = make_plan(read_stored(connection), found.bus, prune=decisions.prune, unreadable=found.unreadable)
    problems = sorted([*found.problems, *(found.locate(problem) for problem in plan.problems)])
    if problems:
        return PlannedChange(plan, (), problems)
    arrears = read_arrears(connection, plan)
    if decisions.owed is Owed.REROUTE:
        heirs(connection, plan, decisions.to)
    return PlannedChange(plan, arrears, ())


def apply_change(connection: Connection, change: PlannedChange, decisions: Decisions, at: datetime) -> AppliedChange:
    """Apply a plan.

    Args:
        connection: with a transaction open; it must be rolled back when this raises.
        decisions: of the person; owed envelopes are kept where they say nothing.
        at: the moment of the change.

    Raises:
        ConfigurationError: the plan has problems, or the bus has changed since it was made (``stale_plan``).
    """
    plan, answer = change.plan, decisions.owed or Owed.KEEP
    inherited = heirs(connection, plan, decisions.to) if answer is Owed.REROUTE else {}
    configuration.apply(connection, plan, at)
    decide(connection, plan, answer, inherited, at)
    return AppliedChange(plan, [*logins_without_password(connection)], find_unreached(connection, plan))
