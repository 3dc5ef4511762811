"""``xbus apply``."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import click

from xbus.admin import bus_file
from xbus.admin.bus_file import BusFile, LineProblem
from xbus.admin.program import Careful, config_option, database_url
from xbus.admin.repair.moves import decision_of
from xbus.admin.sending_again import send_history
from xbus.broker.journal import configuration
from xbus.broker.journal.configuration import Plan, Section, logins_without_password, make_plan, read_stored
from xbus.broker.journal.configuration.decisions import decide, heirs
from xbus.broker.journal.configuration.owed import Arrears, Owed, read_arrears
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.replay import find_unreached
from xbus.clock import SystemClock
from xbus.ending import REFUSED

ANSWERS = click.Choice([answer.value for answer in Owed])

RENAMED = {
    Section.EVENT_TYPE: "Have all emitters send events of type {0} under that name: the former one is refused.",
    Section.ROLE: "Give the program of role {0} its new login. It goes on until it logs in anew.",
    Section.EMITTER: "Give the program of emitter {0} its new login. It goes on until it logs in anew.",
}
"""The work that a renaming leaves for people."""

OWED_FIRST = "To apply it, decide about what is owed: --owed keep, --owed drop, or --owed reroute."


@click.command(cls=Careful)
@config_option
@click.argument("file", type=click.File("rb"))
@click.option("--dry-run", is_flag=True, help="Show what would change and who is still owed something. Change nothing.")
@click.option("--prune", is_flag=True, help="List entries that the file does not name, and remove them.")
@click.option("--yes", is_flag=True, help="Remove without asking.")
@click.option(
    "--owed",
    type=ANSWERS,
    help="Decide about envelopes that are still owed to removed roles, or to roles that no graph leads to any more: "
    "keep them, drop them, or reroute them (by the new graph; to another role).",
)
@click.option("--to", metavar="LOGIN", help="With --owed reroute: the role that gets the envelopes of removed roles.")
def apply(
    config_path: Path | None,
    file: BinaryIO,
    dry_run: bool,
    prune: bool,
    yes: bool,
    owed: str | None,
    to: str | None,
) -> None:
    """Change the bus to match FILE, all of it or nothing; - is standard input.

    Entries that the file does not name stay as they are. A removed role that comes back continues at its old place.
    """
    url = database_url(config_path)
    found = bus_file.read(file.read())
    with reading(url) as connection:
        plan = make_plan(read_stored(connection), found.bus, prune=prune, unreadable=found.unreadable)
        _refuse(getattr(file, "name", "<stdin>"), found, plan)
        arrears = read_arrears(connection, plan)
        _tell(plan, arrears)
        if dry_run and owed == Owed.REROUTE:
            heirs(connection, plan, to)
    if dry_run:
        click.echo("Nothing was changed: this was a dry run." + (f" {OWED_FIRST}" if arrears and not owed else ""))
        return
    answer = Owed(owed) if owed is not None else _ask(arrears)
    if plan.removals and not yes:
        click.confirm("Remove what is told above?", abort=True)
    with writing(url) as connection:
        at = SystemClock().now()
        inherited = heirs(connection, plan, to) if answer is Owed.REROUTE else {}
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


def _refuse(name: str, found: BusFile, plan: Plan) -> None:
    """Show every problem with its line, and leave."""
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


def _tell(plan: Plan, arrears: list[Arrears]) -> None:
    for change in plan.changes:
        click.echo(str(change))
        for owed in arrears:
            if owed.change == change:
                click.echo(f"  {owed}")
    if not plan.changes:
        click.echo("Nothing to change: the bus is as the file says.")


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
