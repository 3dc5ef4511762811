"""``xbus bot run``: the runner."""

import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path

import click

from xbus import logs
from xbus.admin.address import back_option, broker_address
from xbus.admin.program import FiniteRange, config_option
from xbus.admin.secret import login_and_password, login_option, password_file_option
from xbus.bots import BotRunner, RunnerOptions
from xbus.bots.back import BackCalls
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
    runs: int,
    stop_timeout: float,
) -> None:
    """Run bots until SIGTERM or SIGINT.

    Any number of these programs may run, on any machines. Python looks for the modules of bots in the working
    directory, too.
    """
    back = broker_address("back", back_url, config_path)
    front = broker_address("front", front_url, config_path)
    logs.set_up(load_or_default(config_path).logging)
    login, password = login_and_password(login, password_file, back)
    asyncio.run(_serve(back, front, login, password, RunnerOptions(runs=runs, stop_seconds=stop_timeout)))


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
