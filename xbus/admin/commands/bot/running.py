"""``xbus bot run``: the runner."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from xbus import logs
from xbus.admin.address import back_option, broker_address
from xbus.admin.program import FiniteRange, config_option
from xbus.admin.secret import login_and_password, login_option, password_file_option
from xbus.bots import Allowed, BotRunner, RunnerOptions
from xbus.bots.back import BackCalls
from xbus.bots.job import ANY
from xbus.bots.runner import DEFAULTS
from xbus.clock import SystemClock
from xbus.config import load_or_default
from xbus.rpc.context import new_context

MOST_RUNS = 256
"""The most runs at once: each has a process."""


@click.command()
@config_option
@login_option("The runner's login")
@password_file_option
@back_option
@click.option(
    "--front", "front_url", metavar="URL", help="The front's address; by default that of the configuration file."
)
@click.option(
    "--allow",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Call functions of this module and of those below it; may be repeated.",
)
@click.option(
    "--allow-command",
    "programs",
    multiple=True,
    is_flag=False,
    flag_value=ANY,
    metavar="[PROGRAM]",
    help="Run commands that begin with this word, or without one, any; may be repeated.",
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME",
    help="Let bots have this variable of the environment, too; may be repeated.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, MOST_RUNS),
    default=DEFAULTS.runs,
    show_default=True,
    metavar="NUMBER",
    help="So many runs at once, each in a process of its own.",
)
@click.option(
    "--stop-timeout",
    type=FiniteRange(0),
    default=DEFAULTS.stop_seconds,
    show_default=True,
    metavar="SECONDS",
    help="For how long runs may go on when this is told to stop; then they are ended, and tried again elsewhere.",
)
def run(
    config_path: Path | None,
    login: str | None,
    password_file: Path | None,
    back_url: str | None,
    front_url: str | None,
    modules: Sequence[str],
    programs: Sequence[str],
    variables: Sequence[str],
    runs: int,
    stop_timeout: float,
) -> None:
    """Run bots until SIGTERM or SIGINT.

    Any number of these programs may run, on any machines. Python looks for the modules of bots in the working
    directory, too. The bus says what a bot runs; a runner refuses what neither --allow nor --allow-command names. Bots
    have a few variables of its environment: those for paths, language and time zone, and those of --env.
    """
    if not (modules or programs):
        raise click.UsageError("--allow MODULE is missing: it names the module of the bots that may run here")
    back = broker_address("back", back_url, config_path)
    front = broker_address("front", front_url, config_path)
    logs.set_up(load_or_default(config_path).logging)
    login, password = login_and_password(login, password_file, back)
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
