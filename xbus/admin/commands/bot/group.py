"""``xbus bot``: the group, and the commands that show bots and act on them."""

from pathlib import Path
from shlex import quote

import click

from xbus.admin.commands.bot.running import run
from xbus.admin.commands.bot.runs import log, runs
from xbus.admin.names import BOT
from xbus.admin.objects import of_bot
from xbus.admin.output import STATE, Output, facts, name_column, one_json
from xbus.admin.program import (
    ROW_ID,
    CommandGroup,
    config_option,
    database_url,
    json_option,
    output_option,
    reason_option,
)
from xbus.admin.repair.moves import decision_of
from xbus.admin.table import Column
from xbus.admin.watching import watch_option
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.operations.bots import fire_bot, list_bots, release_bot
from xbus.clock import SystemClock

HEADS = (
    name_column("BOT"),
    STATE,
    "NEXT",
    "DUE",
    "RUNNING",
    "FAILURES",
    "LAST",
    Column("WORK", narrows=12, optional=True),
    Column("PAUSE", optional=True, wide_only=True),
)


@click.group(cls=CommandGroup)
def bot() -> None:
    """Run bots, show them and their runs, and have one run now."""


for command in (run, runs, log):
    bot.add_command(command)


@bot.command("list")
@config_option
@watch_option
@output_option("bot")
def list_(config_path: Path | None, output: Output) -> None:
    """Show each bot: its state, when it runs next, and how its last run ended.

    A bot is slowed when ten attempts have failed one after another: NEXT tells for how long nothing of it begins. It is
    tried once then, and goes on when that went well, or when somebody releases it.
    """
    now = SystemClock().now()
    with reading(database_url(config_path)) as connection:
        found = list_bots(connection, now)
    rows = [
        (
            each.name,
            each.state,
            output.ahead(each.slowed_until or each.next_slot, now),
            each.due,
            each.running,
            each.failures,
            None if each.last is None else f"{each.last.state} {output.when(each.last.ended_at, now)}",
            each.work,
            None if each.pause is None else each.pause.told,
        )
        for each in found
    ]
    output.listing((of_bot(each, now) for each in found), HEADS, rows, "No bots.")


@bot.command()
@config_option
@click.argument("name", type=BOT)
@json_option()
def show(config_path: Path | None, name: str, as_json: bool) -> None:
    """Show the bot NAME."""
    now = SystemClock().now()
    with reading(database_url(config_path)) as connection:
        (found,) = list_bots(connection, now, name)
    if as_json:
        click.echo(one_json(of_bot(found, now)))
        return
    last = found.last
    told = {
        "bot": found.name,
        "state": found.state,
        "description": found.description or None,
        "work": found.work,
        "cron": f"{found.cron} ({found.timezone}, missed: {found.missed})" if found.cron else None,
        "reads": ", ".join(found.reads) or None,
        "next": found.next_slot,
        "runners": found.runners,
        "emits": ", ".join(found.emits) or None,
        "due": found.due,
        "running": found.running,
        "failures": found.failures or None,
        "slowed until": found.slowed_until,
        "pause": None if found.pause is None else found.pause.told,
        "last run": None if last is None else f"{last.id}, {last.state}",
        "error": None if last is None or not last.code else f"[{last.code}] {last.error}",
    }
    click.echo("\n".join(facts({name: value for name, value in told.items() if value is not None})))


@bot.command()
@config_option
@click.argument("name", type=BOT)
@click.option("--run", "run_id", type=ROW_ID, metavar="RUN", help="Try this run anew, which has failed.")
@reason_option
def fire(config_path: Path | None, name: str, run_id: int | None, reason: str) -> None:
    """Have the bot NAME run now, whatever its cron says."""
    with writing(database_url(config_path)) as connection:
        number = fire_bot(connection, name, run_id, decision_of(SystemClock(), reason))
    click.echo(f"Run {number} of {name} is due. To see how it ends: xbus bot runs {quote(name)}")


@bot.command()
@config_option
@click.argument("name", type=BOT)
@reason_option
def release(config_path: Path | None, name: str, reason: str) -> None:
    """Let the bot NAME go on that is slowed down, as its trouble is over."""
    with writing(database_url(config_path)) as connection:
        failures = release_bot(connection, name, decision_of(SystemClock(), reason))
    click.echo(f"{name} goes on, after {failures} failures.")
