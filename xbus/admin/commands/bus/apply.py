"""``xbus apply``."""

from pathlib import Path
from typing import BinaryIO

import click

from xbus.admin.applying import (
    ANSWERS,
    OWED_FIRST,
    Problems,
    apply_change,
    confirm_removals,
    decide_about_owed,
    plan_change,
    tell_change,
)
from xbus.admin.bus_file.change import Decisions
from xbus.admin.names import ROLE
from xbus.admin.program import Careful, config_option, database_url
from xbus.broker.journal.configuration.owed import Owed


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
@click.option(
    "--to", type=ROLE, metavar="LOGIN", help="With --owed reroute: the role that gets the envelopes of removed roles."
)
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
    decisions = Decisions(prune, None if owed is None else Owed(owed), to)
    try:
        change = plan_change(url, getattr(file, "name", "<stdin>"), file.read(), decisions)
    except Problems as problems:
        click.echo("\n".join(problems.told), err=True)
        raise
    tell_change(change)
    if not change.plan.changes:
        click.echo("Nothing to change: the bus is as the file says.")
    if dry_run:
        first = f" {OWED_FIRST}" if change.arrears and owed is None else ""
        click.echo(f"Nothing was changed: this was a dry run.{first}")
        return
    decisions = decide_about_owed(change, decisions)
    if not yes:
        confirm_removals(change.plan)
    apply_change(url, change, decisions)
