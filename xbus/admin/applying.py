"""Has the bus match a bus file by commands: tells the plan and what is owed, asks a person, and applies it."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

import click

from xbus.admin.bus_file import LineProblem
from xbus.admin.bus_file.change import Decisions, PlannedChange
from xbus.admin.bus_file.change import apply_change as apply_in
from xbus.admin.bus_file.change import plan_change as plan_in
from xbus.admin.program import confirm
from xbus.admin.repair.moves import decision_of
from xbus.admin.replay import send_history
from xbus.broker.journal.configuration import Plan
from xbus.broker.journal.configuration.owed import Arrears, Owed
from xbus.broker.journal.database.connection import reading, writing
from xbus.clock import SystemClock
from xbus.ending import REFUSED
from xbus.errors import Refused

ANSWERS = click.Choice([answer.value for answer in Owed])

OWED_FIRST = "To apply it, decide about what is owed: --owed keep, --owed drop, or --owed reroute."


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
    with reading(url) as connection:
        change = plan_in(connection, content, decisions)
    if change.problems:
        raise Problems(name, change.problems)
    return change


def tell_change(change: PlannedChange) -> None:
    """Write each change, with the envelopes that are owed because of it."""
    for each in change.plan.changes:
        click.echo(str(each))
        for owed in change.owed_by(each):
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
    with writing(url) as connection:
        applied = apply_in(connection, change, decisions, SystemClock().now())
    for sentence in applied.sentences():
        click.echo(sentence)
    send_history(url, applied.histories, decision_of(SystemClock(), "its start"))


def confirm_removals(plan: Plan) -> None:
    """Ask before entries are removed.

    Raises:
        click.Abort: the answer is no.
    """
    if plan.removals:
        confirm("Remove the entries that are named above?")


def _ask(arrears: Sequence[Arrears]) -> Owed:
    """Ask on a terminal for the decision about backlogs; anywhere else the option must name it."""
    if not arrears:
        return Owed.KEEP
    if sys.stdin.isatty():
        return Owed(click.prompt("What is to become of the owed envelopes that are named above?", type=ANSWERS))
    click.echo(
        "xbus: nothing was changed, as envelopes are still owed: say --owed keep (they are delivered as they were to "
        "be, those of a removed role when it comes back), --owed drop, or --owed reroute",
        err=True,
    )
    raise click.exceptions.Exit(REFUSED)
