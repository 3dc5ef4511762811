"""What an operator does about a bus that runs."""

import asyncio
import subprocess
from pathlib import Path

import sqlalchemy as sa
from click.testing import CliRunner

from tests.support.daemon import Daemon
from tests.support.processes import run, script
from xbus import model
from xbus.admin.cli import main
from xbus.broker.journal.database.connection import writing


async def run_xbus(daemon: Daemon, *command: str | Path, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command of ``xbus`` beside the broker; its exit code is for the caller to judge."""
    return await asyncio.to_thread(run, script("xbus"), *command, "-c", daemon.config, stdin=stdin)


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
        command = ["parked", *arguments, "-c", str(self._daemon.config)]
        done = await asyncio.to_thread(CliRunner().invoke, main, command)
        assert done.exit_code == 0, done.output
        return done.stdout


def isolate_bad_items(url: str, type_name: str) -> None:
    """Have bad items of a type parked alone."""
    event_type = model.event_type
    with writing(url) as connection:
        connection.execute(sa.update(event_type).where(event_type.c.name == type_name).values(bad_items="isolate"))
