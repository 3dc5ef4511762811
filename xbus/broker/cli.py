"""The two programs of the broker: ``setup_xbusbroker`` makes its database, ``start_xbusbroker`` runs it."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import click

from xbus import ending, logs
from xbus.broker.journal.configuration import add_demo_rows
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import writing
from xbus.config import FILE_VARIABLE, Config, load
from xbus.errors import XbusError

log = logging.getLogger(__name__)

MUST_BE_MENDED = 1

EXIT_CODES = (
    "Ends with 0 when all went well, with 1 when something must be mended first, which a line on standard error names "
    "with its cure, and with 2 when the command line is wrong."
)
EXIT_CODES_OF_START = (
    "Ends with 0 when it was told to stop, with 1 when something must be mended first, which a line on standard error "
    "names with its cure, with 2 when the command line is wrong, and with 3 when a part of it died; the log says why."
)

HELP = {"help_option_names": ["-h", "--help"]}

DEMO_ADDED = """\
The demo rows are added. Their passwords are known to everybody and for trying only:
  emitter test_emitter, password "password", sends test_event
  worker role worker_role, password "password", of worker_service
  consumer role consumer_role, password "password", of consumer_service"""

config_option = click.option(
    "-c",
    "--config",
    "path",
    type=click.Path(path_type=Path),
    envvar=FILE_VARIABLE,
    show_envvar=True,
    metavar="FILE",
    help="The configuration file; xbus config init writes one that explains each option.",
)


@click.command(epilog=EXIT_CODES, context_settings=HELP)
@config_option
@click.option("--demo", is_flag=True, help="Add rows to try the bus with, passwords included.")
def setup(path: Path | None, demo: bool) -> None:
    """Create the broker's database, or bring it to the version of this program. Safe to repeat."""
    _run("setup_xbusbroker", path, lambda config: _set_up(config, demo))


@click.command(epilog=EXIT_CODES_OF_START, context_settings=HELP)
@config_option
@click.option("--ready-file", type=click.Path(path_type=Path), metavar="FILE", help="Written when the broker is ready.")
@click.option("--only", type=click.Choice(["front", "back"]), help="Run one of the two parts; both must run somewhere.")
@click.option(
    "--drill", is_flag=True, help="Answer health only: for a look at a restored journal. Nothing is delivered."
)
def start(path: Path | None, ready_file: Path | None, only: Literal["front", "back"] | None, drill: bool) -> None:
    """Run the broker until SIGTERM or SIGINT.

    The ready file is JSON: {"pid": 4711, "front": "tcp://127.0.0.1:1984", "back": "tcp://127.0.0.1:4891"}, with the
    ports that were really taken; a part that does not run is left out.
    """
    work = _drill if drill else _start
    _run("start_xbusbroker", path, lambda config: work(config, only, ready_file))


def _drill(config: Config, only: Literal["front", "back"] | None, ready_file: Path | None) -> int:
    schema.check(config.database.url)
    from xbus.broker import drill

    return drill.run(config, only=only, ready_file=ready_file)


def _start(config: Config, only: Literal["front", "back"] | None, ready_file: Path | None) -> int:
    schema.check(config.database.url)
    from xbus.broker import daemon  # here, because setting up needs none of the broker's parts

    return daemon.run(config, only=only, ready_file=ready_file)


def _set_up(config: Config, demo: bool) -> int:
    schema.upgrade(config.database.url)
    click.echo("The database is set up.")
    if demo:
        with writing(config.database.url) as connection:
            add_demo_rows(connection)
        click.echo(DEMO_ADDED)
    return 0


def _run(program: str, path: Path | None, work: Callable[[Config], int]) -> None:
    """Do the work with the configuration, and leave the process with its exit code."""
    try:
        config = load(path)
        logs.set_up(config.logging)
        for note in config.notes:
            log.warning("%s", note, extra={"action": "read_configuration"})
        code = work(config)
    except XbusError as error:
        ending.tell(program, error)
        code = MUST_BE_MENDED
    sys.exit(code)
