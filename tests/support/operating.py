"""What an operator does about a bus that runs."""

import asyncio
import subprocess
import threading
from pathlib import Path

import sqlalchemy as sa
from click.testing import CliRunner

from tests.support.daemon import Daemon
from xbus import model
from xbus.admin.cli import main
from xbus.broker.journal.database.connection import writing

_ONE_AT_A_TIME = threading.Lock()
"""A command that runs here has the standard output of this process for itself."""


def run_command(*command: str | Path, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command of ``xbus`` in this process, which spares its start; its exit code is for the caller to judge."""
    words = [str(word) for word in command]
    with _ONE_AT_A_TIME:
        done = CliRunner().invoke(main, words, input=stdin, prog_name="xbus")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


async def run_xbus(daemon: Daemon, *command: str | Path, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command of ``xbus`` beside the broker; its exit code is for the caller to judge."""
    return await asyncio.to_thread(run_command, *command, "-c", daemon.config, stdin=stdin)


async def xbus(daemon: Daemon, *command: str | Path, stdin: str = "") -> str:
    """What a command of ``xbus`` prints that goes well."""
    done = await run_xbus(daemon, *command, stdin=stdin)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


class Operator:
    """Gives commands of ``xbus parked``, in this process: the pages of the documentation give them in a terminal."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    async def give(self, *arguments: str) -> str:
        """What a command says that goes well; the test's clients go on meanwhile."""
        return await xbus(self._daemon, "parked", *arguments)


def isolate_bad_items(url: str, type_name: str) -> None:
    """Have bad items of a type parked alone."""
    event_type = model.event_type
    with writing(url) as connection:
        connection.execute(sa.update(event_type).where(event_type.c.name == type_name).values(bad_items="isolate"))
