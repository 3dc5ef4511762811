"""``xbus bot runs`` and ``xbus bot log``."""

from pathlib import Path

import click

from xbus.admin.names import BOT
from xbus.admin.objects import of_run
from xbus.admin.output import STATE, Output, name_column, one_json
from xbus.admin.program import ROW_ID, config_option, database_url, json_option, limit_option, output_option
from xbus.admin.table import Column
from xbus.admin.watching import watch_option
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.bots import list_runs, show_run
from xbus.clock import SystemClock
from xbus.ending import printable_lines
from xbus.states import BotRunState

HEADS = (
    "RUN",
    name_column("BOT"),
    STATE,
    "SLOT",
    "STARTED",
    "SECONDS",
    "ATTEMPTS",
    Column("RUNNER", optional=True),
    Column("ERROR", narrows=20, optional=True),
)


@click.command()
@config_option
@click.argument("name", type=BOT, required=False)
@click.option("--state", type=click.Choice([state.value for state in BotRunState]), help="Only runs in this state.")
@limit_option
@watch_option
@output_option("run")
def runs(config_path: Path | None, name: str | None, state: str | None, limit: int, output: Output) -> None:
    """Show the runs of the bot NAME, or of all, the newest first."""
    wanted = None if state is None else BotRunState(state)
    with reading(database_url(config_path)) as connection:
        found = list_runs(connection, name, limit, wanted)
    now = SystemClock().now()
    rows = [
        (
            run.id,
            run.bot,
            run.state,
            run.batch or ("fired" if run.slot is None else f"{run.slot:%Y-%m-%d %H:%M:%SZ}"),
            output.when(run.started_at, now),
            None
            if run.started_at is None or run.ended_at is None
            else f"{(run.ended_at - run.started_at).total_seconds():.3f}",
            run.attempts,
            run.runner,
            None if run.code is None else f"[{run.code}] {run.error}",
        )
        for run in found
    ]
    output.listing((of_run(run) for run in found), HEADS, rows, "No runs.")


@click.command()
@config_option
@click.argument("name", type=BOT)
@click.option("--run", "run_id", type=ROW_ID, metavar="RUN", help="Of this run; by default of the one that ended last.")
@json_option()
def log(config_path: Path | None, name: str, run_id: int | None, as_json: bool) -> None:
    """Show what a run of the bot NAME has printed in its last attempt, as far as it was kept."""
    with reading(database_url(config_path)) as connection:
        found = show_run(connection, name, run_id)
    if as_json:
        click.echo(one_json({**of_run(found), "log": found.log}))
        return
    click.echo(printable_lines(found.log or ""), nl=False)
    if found.code is not None:
        click.echo(printable_lines(f"[{found.code}] {found.error}"), err=True)
