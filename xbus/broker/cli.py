"""The two programs of the broker: ``setup_xbusbroker`` makes its database, ``start_xbusbroker`` runs it."""

import logging
import math
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from xbus import ending, logs
from xbus.backoff import Backoff, Patience
from xbus.broker.journal.configuration import add_demo_rows
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import writing
from xbus.config import Config, load
from xbus.config.command_line import file_option
from xbus.config.plaintext import needs_keys
from xbus.errors import JournalRefused, JournalUnavailable, TakenOver, XbusError
from xbus.rpc.curve import read_pair

Command = TypeVar("Command", bound=Callable[..., Any])

log = logging.getLogger(__name__)

EXIT_CODES = (
    "Ends with 0 when all went well, with 1 when something must be mended first, which a line on standard error names "
    "with its cure, with 2 when the command line is wrong, and with 3 when the database can't be reached now."
)
EXIT_CODES_OF_START = (
    "Ends with 0 when it was told to stop, with 1 when something must be mended first, which a line on standard error "
    "names with its cure, with 2 when the command line is wrong, with 3 when a part of it died, the journal went back "
    "or the database can't be reached, and with 4 when another broker has taken over; the log says why."
)

FIRST_DELAY_SECONDS = 1.0
"""Seconds until a database that is away is tried again. Shorter starts sooner and writes more lines."""

LONGEST_DELAY_SECONDS = 30.0

HELP = {"help_option_names": ["-h", "--help"]}

DEMO_ADDED = """\
The demo rows are added. Their passwords are known to everybody and for trying only:
  emitter test_emitter, password "password", sends test_event
  worker role worker_role, password "password", of worker_service
  consumer role consumer_role, password "password", of consumer_service"""

config_option = file_option("path", "The configuration file; xbus config init writes one that explains each option.")


def start_timeout_option(default: str) -> Callable[[Command], Command]:
    """Add ``--start-timeout``, which is None if nobody gives it."""
    told = f"For how long to wait for a database that is away, before this ends with 3; by default {default}."
    return click.option("--start-timeout", type=click.FloatRange(0), metavar="SECONDS", help=told)


@click.command(epilog=EXIT_CODES, context_settings=HELP)
@config_option
@click.option("--demo", is_flag=True, help="Add rows to try the bus with, passwords included.")
@start_timeout_option("it does not wait")
def setup(path: Path | None, demo: bool, start_timeout: float | None) -> None:
    """Create the broker's database, or bring it to the version of this program. Safe to repeat."""
    _run("setup_xbusbroker", path, lambda config: _set_up(config, demo), start_timeout or 0.0)


@click.command(epilog=EXIT_CODES_OF_START, context_settings=HELP)
@config_option
@click.option("--ready-file", type=click.Path(path_type=Path), metavar="FILE", help="Written when the broker is ready.")
@click.option("--only", type=click.Choice(["front", "back"]), help="Run one of the two parts; both must run somewhere.")
@click.option(
    "--drill", is_flag=True, help="Answer health only: for a look at a restored journal. Nothing is delivered."
)
@click.option("--standby", is_flag=True, help="Wait until no other broker of the journal leads. It needs PostgreSQL.")
@start_timeout_option("for ever")
def start(
    path: Path | None,
    ready_file: Path | None,
    only: Literal["front", "back"] | None,
    drill: bool,
    standby: bool,
    start_timeout: float | None,
) -> None:
    """Run the broker until SIGTERM or SIGINT.

    The ready file is JSON: {"pid": 4711, "front": "tcp://127.0.0.1:1984", "back": "tcp://127.0.0.1:4891"}, with the
    ports that were really taken; a part that does not run is left out.
    """
    folder = path.parent if path is not None else Path()
    seconds = math.inf if start_timeout is None else start_timeout

    def work(config: Config) -> int:
        if drill:
            return _drill(config, only, ready_file)
        return _start(config, folder, only, ready_file, standby=standby or config.broker.standby)

    _run("start_xbusbroker", path, work, seconds)


def _drill(config: Config, only: Literal["front", "back"] | None, ready_file: Path | None) -> int:
    _stop_at_signal()
    schema.check(config.database.url)
    from xbus.broker import drill, encryption

    encryption.check_plaintext(config)

    return drill.run(config, only=only, ready_file=ready_file)


def _start(
    config: Config, folder: Path, only: Literal["front", "back"] | None, ready_file: Path | None, *, standby: bool
) -> int:
    _stop_at_signal()
    schema.check(config.database.url)
    from xbus.broker import daemon, encryption, leading  # here, because setting up needs none of the broker's parts

    encryption.check_plaintext(config)
    if not standby:
        return daemon.run(config, folder, only=only, ready_file=ready_file)
    if needs_keys(config):
        read_pair(config.curve.key_file)  # not only when it leads, and is needed
    lease = leading.stand_by(config, only)
    if lease is None:
        return ending.STOPPED
    _stop_at_signal()
    try:
        code = daemon.run(config, folder, only=None, ready_file=ready_file, lease=lease)
        return ending.NOT_NOW if lease.is_handed_over else code
    except TakenOver as error:
        log.warning("%s: start it again to have it stand by", error, extra={"action": "leads_no_more"})
        return ending.NOT_NOW
    finally:
        lease.release()


def _set_up(config: Config, demo: bool) -> int:
    schema.upgrade(config.database.url)
    click.echo("The database is set up.")
    if needs_keys(config):
        from xbus.broker import encryption

        if public := encryption.make_keys(config):
            click.echo(f"{config.curve.key_file} is made. The public key of the broker is {public}")
    if demo:
        with writing(config.database.url) as connection:
            add_demo_rows(connection)
        click.echo(DEMO_ADDED)
    return 0


def _stop_at_signal() -> None:
    """Have SIGTERM and SIGINT end the program with 0, until the broker runs and obeys them itself."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


def _run(program: str, path: Path | None, work: Callable[[Config], int], start_timeout: float) -> None:
    """Do the work with the configuration, and leave the process with its exit code."""
    try:
        config = load(path)
        logs.set_up(config.logging)
        for note in config.notes:
            log.warning("%s", note, extra={"action": "read_configuration"})
        code = _with_database(lambda: work(config), start_timeout)
    except XbusError as error:
        ending.tell(program, error)
        code = ending.exit_code(error)
    sys.exit(code)


def _with_database(work: Callable[[], int], seconds: float) -> int:
    """Do the work, and repeat it for so many seconds while the database is away.

    Raises:
        JournalUnavailable: the time is over, or a person must mend the address or the database first.
    """
    patience = Patience(seconds, Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS), time.monotonic)
    while True:
        try:
            return work()
        except JournalRefused:
            raise
        except JournalUnavailable as error:
            delay = patience.failed()
            if delay is None:
                raise
            extra = {"action": "database_away", "code": error.code, "seconds": delay}
            log.warning("the database is away, trying again in %g s: %s", delay, error, extra=extra)
        time.sleep(delay)
