"""``xbus apply``."""

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import click

from xbus.admin import bus_file
from xbus.admin.bus_file import BusFile, LineProblem
from xbus.admin.program import REFUSED, config_option, database_url
from xbus.broker.journal import configuration
from xbus.broker.journal.configuration import Change, Plan, Role, logins_without_password, make_plan, read_stored
from xbus.broker.journal.connection import reading, writing
from xbus.broker.journal.role_progress import MOST_COUNTED, count_owed
from xbus.clock import SystemClock


@click.command()
@config_option
@click.argument("file", type=click.File("rb"))
@click.option("--prune", is_flag=True, help="Remove what the file does not name, after saying what.")
@click.option("--yes", is_flag=True, help="Remove without asking.")
def apply(config_path: Path | None, file: BinaryIO, prune: bool, yes: bool) -> None:
    """Bring the bus to what FILE says, all of it or nothing; - is standard input.

    What the file does not name stays as it is. A role that was removed and comes back goes on where it stood.
    """
    url = database_url(config_path)
    found = bus_file.read(file.read())
    with reading(url) as connection:
        plan = make_plan(read_stored(connection), found.bus, prune=prune, unreadable=found.unreadable)
        owed = {change.name: count_owed(connection, change.name) for change in _removed_roles(plan)}
    _refuse(getattr(file, "name", "<stdin>"), found, plan)
    _tell(plan, owed)
    if plan.removals and not yes:
        click.confirm("Remove what is told above?", abort=True)
    with writing(url) as connection:
        configuration.apply(connection, plan, SystemClock().now())
        missing = [*logins_without_password(connection)]
    if plan.changes:
        click.echo(f"Applied: the configuration is at version {plan.version + 1}.")
    for kind, login in missing:
        click.echo(f"{kind} {login} can't log in yet: xbus password {kind} {login}")


def _refuse(name: str, found: BusFile, plan: Plan) -> None:
    """Tell every problem with its line, and leave."""
    problems = sorted([*found.problems, *(found.locate(problem) for problem in plan.problems)])
    if problems:
        _tell_problems(name, problems)
        click.get_current_context().exit(REFUSED)


def _tell_problems(name: str, problems: Iterable[LineProblem]) -> None:
    told = [f"{name}:{problem.line}: {problem.sentence}" for problem in problems]
    click.echo("\n".join(told), err=True)
    click.echo(f"xbus: {name} was not applied, nothing was changed: correct {_count(len(told))} above", err=True)


def _count(problems: int) -> str:
    return "the problem" if problems == 1 else f"the {problems} problems"


def _tell(plan: Plan, owed: dict[str, int]) -> None:
    for change in plan.changes:
        click.echo(f"{change}{_warning(owed.get(change.name, 0)) if change in _removed_roles(plan) else ''}")
    if not plan.changes:
        click.echo("Nothing to change: the bus is as the file says.")


def _removed_roles(plan: Plan) -> list[Change]:
    return [change for change in plan.removals if isinstance(change.entry, Role)]


def _warning(owed: int) -> str:
    if owed == 0:
        return ""
    number = "1 envelope" if owed == 1 else f"{owed} envelopes" if owed < MOST_COUNTED else f"{owed} envelopes or more"
    return f" (it has not got {number} yet, and won't unless it is named again)"
