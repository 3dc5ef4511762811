"""``xbus bot``: runs bots, shows them and their runs, and has one run now."""

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from shlex import quote

import click

from xbus import logs
from xbus.admin.address import CommandLogin, broker_address, way_to
from xbus.admin.arguments import BOT, LIMIT, REASON
from xbus.admin.objects import of_bot, of_run
from xbus.admin.output import STATE, Column, Output, counted, facts, name_column, one_json
from xbus.admin.program import ROW_ID, CommandGroup, FiniteRange
from xbus.admin.signatures import BusAction, CommandBus, argument, command, command_of, option, shown
from xbus.bots import Allowed, BotRunner, RunnerOptions
from xbus.bots.back import BackCalls
from xbus.bots.job import ANY
from xbus.bots.runner import DEFAULTS
from xbus.broker.journal.operations import bots
from xbus.clock import SystemClock
from xbus.config import load_or_default
from xbus.ending import printable_lines
from xbus.rights import Right
from xbus.rpc.context import new_context
from xbus.states import BotRunState


@click.group(cls=CommandGroup)
def bot() -> None:
    """Run bots, show them and their runs, and have one run now."""


@command(bot)
def list_(bus: CommandBus, output: Output = shown("bot", watch=True)) -> None:
    """Show each bot: its state, when it runs next, and how its last run ended.

    A bot is slowed when ten attempts have failed one after another: NEXT tells for how long nothing of it begins. It is
    tried once then, and goes on when that went well, or when somebody releases it.
    """
    found = bus.read(lambda connection: bots.list_bots(connection, output.now))
    rows = [
        {
            name_column("BOT"): each.name,
            STATE: each.state,
            "NEXT": output.ahead(each.slowed_until or each.next_slot),
            "DUE": each.due,
            "RUNNING": each.running,
            "FAILURES": each.failures,
            "LAST": None if each.last is None else f"{each.last.state} {output.when(each.last.ended_at)}",
            Column("WORK", narrows=12, optional=True): each.work,
            Column("PAUSE", optional=True, wide_only=True): None if each.pause is None else each.pause.told,
        }
        for each in found
    ]
    output.listing(found, lambda each: of_bot(each, output.now), rows, "No bots.")


@command(bot)
def show(bus: CommandBus, name: str = argument(BOT), output: Output = shown(wide=False)) -> None:
    """Show the bot NAME."""
    now = bus.now()
    (found,) = bus.read(lambda connection: bots.list_bots(connection, now, name))
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
    output.detail(of_bot(found, now), facts(told))


class FireBot(BusAction):
    """Have the bot NAME run now, whatever its cron says, or try a run of it anew that has failed."""

    path = "bots/fire"
    title = "Fire"
    words = "bot fire"
    right = Right.OPERATOR

    name: str = argument(BOT)
    run_id: int | None = option("Try this run anew, which has failed.", ROW_ID, "--run", metavar="RUN")
    reason: str = REASON

    def preview(self, bus: CommandBus) -> Iterator[str]:
        with bus.reading() as connection:
            bots.check_fire(connection, self.name, self.run_id)
            (found,) = bots.list_bots(connection, bus.now(), self.name)
        which = "a run" if self.run_id is None else f"run {self.run_id} anew"
        yield f"Have {self.name} do {which}: {found.work}"
        if found.pause is not None or found.slowed_until is not None:
            yield f"It is {found.state}: the run begins when that is over."

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            number = bots.fire_bot(connection, self.name, self.run_id, bus.decision(self.reason))
        yield f"Run {number} of {self.name} is due. To see how it ends: xbus bot runs {quote(self.name)}"


class ReleaseBot(BusAction):
    """Let the bot NAME go on that is slowed down, as its trouble is over."""

    path = "bots/release"
    title = "Release"
    words = "bot release"
    right = Right.OPERATOR

    name: str = argument(BOT)
    reason: str = REASON

    def preview(self, bus: CommandBus) -> Iterator[str]:
        _, failures = bus.read(lambda connection: bots.check_release(connection, self.name))
        yield f"{self.name} is slowed down, as {counted(failures, 'attempt')} failed one after another."
        yield "Let it go on at once."

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        with bus.writing() as connection:
            failures = bots.release_bot(connection, self.name, bus.decision(self.reason))
        yield f"{self.name} goes on, after {counted(failures, 'failure')}."


command_of(FireBot, bot)
command_of(ReleaseBot, bot)


@command(bot)
def runs(
    bus: CommandBus,
    bot: str | None = argument(BOT, metavar="[NAME]", about="Only of this bot."),
    state: BotRunState | None = option("Only runs in this state."),
    before: int | None = option("Only runs below this one.", ROW_ID, metavar="RUN"),
    limit: int = LIMIT,
    output: Output = shown("run", watch=True),
) -> None:
    """Show the runs of the bot NAME, or of all, the newest first."""
    found = bus.read(lambda connection: bots.list_runs(connection, bot, limit, state, before))
    rows = [
        {
            "RUN": run.id,
            name_column("BOT"): run.bot,
            STATE: run.state,
            "SLOT": run.batch or ("fired" if run.slot is None else f"{run.slot:%Y-%m-%d %H:%M:%SZ}"),
            "STARTED": output.when(run.started_at),
            "SECONDS": _seconds(run),
            "ATTEMPTS": run.attempts,
            Column("RUNNER", optional=True): run.runner,
            Column("ERROR", narrows=20, optional=True): None if run.code is None else f"[{run.code}] {run.error}",
        }
        for run in found
    ]
    after = {"before": found[-1].id} if len(found) == limit else None
    output.listing(found, of_run, rows, "No runs.", after=after)


def _seconds(run: bots.BotRunStatus) -> str | None:
    if run.started_at is None or run.ended_at is None:
        return None
    return f"{(run.ended_at - run.started_at).total_seconds():.3f}"


@command(bot)
def log(
    bus: CommandBus,
    name: str = argument(BOT),
    run_id: int | None = option("Of this run; by default of the one that ended last.", ROW_ID, "--run", metavar="RUN"),
    output: Output = shown(wide=False),
) -> None:
    """Show what a run of the bot NAME has printed in its last attempt, as far as it was kept."""
    found = bus.read(lambda connection: bots.show_run(connection, name, run_id))
    if output.as_json:
        click.echo(one_json({**of_run(found), "log": found.log}))
        return
    click.echo(printable_lines(found.log or ""), nl=False)
    if found.code is not None:
        click.echo(printable_lines(f"[{found.code}] {found.error}"), err=True)


MOST_RUNS = 256
"""The most runs at once: each has a process."""


@command(bot)
def run(
    bus: CommandBus,
    way: CommandLogin = way_to("back", "The runner's login"),
    front_url: str | None = option(
        "The front's address; by default that of the configuration file.", None, "--front", metavar="URL"
    ),
    modules: Sequence[str] = option(
        "Call functions of this module and of those below it; may be repeated.", None, "--allow", metavar="MODULE"
    ),
    programs: Sequence[str] = option(
        "Run commands that begin with this word, or without one, any; may be repeated.",
        None,
        "--allow-command",
        is_flag=False,
        flag_value=ANY,
        metavar="[PROGRAM]",
    ),
    variables: Sequence[str] = option(
        "Let bots have this variable of the environment, too; may be repeated.", None, "--env", metavar="NAME"
    ),
    runs: int = option(
        "So many runs at once, each in a process of its own.",
        click.IntRange(1, MOST_RUNS),
        default=DEFAULTS.runs,
        show_default=True,
        metavar="NUMBER",
    ),
    stop_timeout: float = option(
        "For how long runs may go on when this is told to stop; then they are ended, and tried again elsewhere.",
        FiniteRange(0),
        default=DEFAULTS.stop_seconds,
        show_default=True,
        metavar="SECONDS",
    ),
) -> None:
    """Run bots until SIGTERM or SIGINT.

    Any number of these programs may run, on any machines. Python looks for the modules of bots in the working
    directory, too. The bus says what a bot runs; a runner refuses what neither --allow nor --allow-command names. Bots
    have a few variables of its environment: those for paths, language and time zone, and those of --env.
    """
    if not (modules or programs):
        raise click.UsageError("--allow MODULE is missing: it names the module of the bots that may run here")
    back = way.address
    front = broker_address("front", front_url, bus.path)
    logs.set_up(load_or_default(bus.path).logging)
    login, password = way.login_and_password()
    options = RunnerOptions(Allowed(modules, programs), variables, runs=runs, stop_seconds=stop_timeout)
    asyncio.run(_serve(back, front, login, password, options))


async def _serve(back: str, front: str, login: str, password: str, options: RunnerOptions) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with ExitStack() as exit_stack:
        context = new_context()
        exit_stack.callback(context.destroy)
        calls = BackCalls(context, back, login, password, SystemClock())
        exit_stack.callback(calls.close)
        await BotRunner(calls, front, options).serve(stop)
