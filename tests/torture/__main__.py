"""``python -m tests.torture``: one JSON line on standard output; exit code 1 where a promise was not kept.

CYCLES, SEED, DB, FAULTS, RSS and FOLDER are read from the environment: see ``settings.py``.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click

from tests.support.postgres import NotFound
from tests.torture.run import Outcome, torture
from tests.torture.settings import Settings, read_settings

INTERRUPTED = 130


def main() -> int:
    """Run, tell and give the exit code."""
    try:
        settings = read_settings(os.environ)
        folder = _folder(settings)
        outcome = asyncio.run(_until_signal(settings, folder))
    except (ValueError, NotFound) as error:
        click.echo(f"torture: {error}", err=True)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        click.echo("torture: interrupted, all programs are ended", err=True)
        return INTERRUPTED
    click.echo(outcome.strikes(), err=True)
    click.echo(outcome.line(settings))
    for complaint in outcome.complaints():
        click.echo(complaint, err=True)
    if not outcome.is_right:
        click.echo(f"torture: seed {settings.seed}, see {folder}", err=True)
        return 1
    if settings.folder is None:
        shutil.rmtree(folder)
    return 0


def _folder(settings: Settings) -> Path:
    if settings.folder is None:
        return Path(tempfile.mkdtemp(prefix="xbus-torture-"))
    settings.folder.mkdir(parents=True)
    return settings.folder


async def _until_signal(settings: Settings, folder: Path) -> Outcome:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await torture(settings, folder)


if __name__ == "__main__":
    sys.exit(main())
