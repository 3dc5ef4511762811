"""Has the bus match a bus file: tells the plan and what is owed, asks a person, and applies all of it or nothing."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace

import click

from xbus.admin import bus_file
from xbus.admin.bus_file import BusFile, LineProblem
from xbus.admin.program import confirm
from xbus.admin.repair.moves import decision_of
from xbus.admin.replay.sending_again import send_history
from xbus.broker.journal import configuration
from xbus.broker.journal.configuration import Plan, Section, logins_without_password, make_plan, read_stored
from xbus.broker.journal.configuration.decisions import decide, heirs
from xbus.broker.journal.configuration.owed import Arrears, Owed, read_arrears
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.replay import find_unreached
from xbus.clock import SystemClock
from xbus.ending import REFUSED
from xbus.errors import Refused

ANSWERS = click.Choice([answer.value for answer in Owed])

RENAMED = {
    Section.EVENT_TYPE: "Have all emitters send events of type {0} under that name: the former one is refused.",
    Section.ROLE: "Give the program of role {0} its new login. It goes on until it logs in anew.",
    Section.EMITTER: "Give the program of emitter {0} its new login. It goes on until it logs in anew.",
}
"""The work that a renaming leaves for people."""

OWED_FIRST = "To apply it, decide about what is owed: --owed keep, --owed drop, or --owed reroute."


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
    """A plan, and the envelopes about which it takes a decision."""

    plan: Plan
    arrears: list[Arrears]


class Problems(Refused):
    """A bus file that can't be applied.

    Args:
        lines: each problem with its line.
    """

    def __init__(self, name: str, lines: Iterable[LineProblem]) -> None:
        told = [f"{name}:{problem.line}: {problem.sentence}" for problem in lines]
        which = "the problem" if len(told) == 1 else f"the {len(told)} problems"
        super().__init__(f"{name} was not applied, nothing was changed", f"correct {which} above", code="bad_bus_file")
        self.told = told


def plan_change(url: str, name: str, content: bytes, decisions: Decisions) -> PlannedChange:
    """Compare a bus file with the bus.

    Args:
        url: the database.
        name: what messages call the file.
        content: the bus file.
        decisions: of the person.

    Raises:
        Problems: the file can't be applied.
    """
    found = bus_file.read(content)
    with reading(url) as connection:
        plan = make_plan(read_stored(connection), found.bus, prune=decisions.prune, unreadable=found.unreadable)
        _check(name, found, plan)
        arrears = read_arrears(connection, plan)
        if decisions.owed is Owed.REROUTE:
            heirs(connection, plan, decisions.to)
    return PlannedChange(plan, arrears)


def _check(name: str, found: BusFile, plan: Plan) -> None:
    problems = sorted([*found.problems, *(found.locate(problem) for problem in plan.problems)])
    if problems:
        raise Problems(name, problems)


def tell_change(change: PlannedChange) -> None:
    """Write each change, with the envelopes that are owed because of it."""
    for each in change.plan.changes:
        click.echo(str(each))
        for owed in change.arrears:
            if owed.change == each:
                click.echo(f"  {owed}")


def decide_about_owed(change: PlannedChange, decisions: Decisions) -> Decisions:
    """Ask for the decision about what is owed, where it is needed and was not given.

    Raises:
        click.exceptions.Exit: nobody can be asked.
    """
    if decisions.owed is not None:
        return decisions
    return replace(decisions, owed=_ask(change.arrears))


def apply_change(url: str, change: PlannedChange, decisions: Decisions) -> None:
    """Apply a plan that was told, and tell the work that it leaves.

    Raises:
        ConfigurationError: the bus has changed since the plan was made.
    """
    plan, answer = change.plan, decisions.owed or Owed.KEEP
    with writing(url) as connection:
        at = SystemClock().now()
        inherited = heirs(connection, plan, decisions.to) if answer is Owed.REROUTE else {}
        configuration.apply(connection, plan, at)
        decide(connection, plan, answer, inherited, at)
        missing = [*logins_without_password(connection)]
        histories = find_unreached(connection, plan)
    if plan.changes:
        click.echo(f"Applied: the configuration is at version {plan.version + 1}.")
    for rename in plan.renames:
        if rename.section in RENAMED:
            click.echo(RENAMED[rename.section].format(rename.name))
    for kind, login in missing:
        click.echo(f"{kind} {login} can't log in yet: xbus password {kind} {login}")
    send_history(url, histories, decision_of(SystemClock(), "its start"))


def confirm_removals(plan: Plan) -> None:
    """Ask before entries are removed.

    Raises:
        click.Abort: the answer is no.
    """
    if plan.removals:
        confirm("Remove what is told above?")


def _ask(arrears: list[Arrears]) -> Owed:
    """Ask on a terminal for the decision about backlogs; anywhere else the option must name it."""
    if not arrears:
        return Owed.KEEP
    if sys.stdin.isatty():
        return Owed(click.prompt("What is to become of what is told above to be owed?", type=ANSWERS))
    click.echo(
        "xbus: nothing was changed, as envelopes are still owed: say --owed keep (they are delivered as they were to "
        "be, those of a removed role when it comes back), --owed drop, or --owed reroute",
        err=True,
    )
    raise click.exceptions.Exit(REFUSED)
