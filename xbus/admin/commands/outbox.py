"""``xbus outbox``."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from shlex import quote

import click

from xbus.admin.address import broker_address, login_and_password, login_option, password_file_option, timeout_option
from xbus.admin.objects import of_outbox
from xbus.admin.output import CAUSE, Output, Row, counted, facts, moment, name_column, one_json
from xbus.admin.program import CommandGroup, config_option, output_option
from xbus.emitter.flushing import flush_outbox
from xbus.emitter.outbox import Outbox, OutboxStatus, QueuedEnvelope
from xbus.errors import Refused

file_argument = click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
places_argument = click.argument("places", nargs=-1, type=click.IntRange(1, 2**63 - 1), metavar="[PLACE]...")


@click.group(cls=CommandGroup)
def outbox() -> None:
    """Manage an emitter's outbox: the file that keeps its envelopes while the bus is away."""


@outbox.command()
@file_argument
@output_option()
def status(path: Path, output: Output) -> None:
    """Show the waiting and the refused envelopes of FILE, and the obstacle, if any."""
    with _opened(path) as box:
        found = box.status()
    click.echo(one_json(of_outbox(found)) if output.as_json else "\n".join(_told(found, output)))


def _told(found: OutboxStatus, output: Output) -> Iterator[str]:
    trouble = None
    if found.trouble is not None:
        code, cause, since = found.trouble
        trouble = f"since {_moment(since)}: {cause} ({code})"
    yield from facts(
        {
            "waiting": found.waiting,
            "bytes": found.waiting_bytes,
            "oldest": _moment(found.oldest),
            "refused": len(found.refused),
            "trouble": trouble,
        }
    )
    rows = [_row(each, output) for each in found.refused]
    yield from output.block("REFUSED BY THE BUS", rows)


def _row(refused: QueuedEnvelope, output: Output) -> Row:
    queued = output.when(datetime.fromisoformat(refused.queued_at))
    return {
        "PLACE": str(refused.place),
        "QUEUED": queued,
        "BYTES": refused.size,
        name_column("KEY"): refused.key,
        name_column("CODE"): refused.code,
        CAUSE: refused.cause,
    }


@outbox.command()
@file_argument
@config_option
@login_option("The emitter's login")
@password_file_option
@click.option("--url", help="The front's address; by default that of the configuration file.")
@timeout_option
def flush(
    path: Path, config_path: Path | None, login: str | None, password_file: Path | None, url: str | None, timeout: float
) -> None:
    """Send all waiting envelopes of FILE, in order; set refused ones aside."""
    address = broker_address("front", url, config_path)
    flushed = flush_outbox(path, address, *login_and_password(login, password_file, address), timeout)
    click.echo(f"{counted(flushed.sent, 'envelope')} sent.")
    if flushed.refused:
        raise Refused(
            f"{counted(flushed.refused, 'envelope')} refused by the bus",
            f"see why with xbus outbox status {quote(str(path))}",
        )


@outbox.command()
@file_argument
@places_argument
def retry(path: Path, places: tuple[int, ...]) -> None:
    """Put refused envelopes back in line, at their old place: those at the PLACEs, or all."""
    with _opened(path) as box:
        click.echo(f"{counted(box.retry(places), 'envelope')} put back.")


@outbox.command()
@file_argument
@places_argument
@click.option("--all", "everything", is_flag=True, help="Remove all refused envelopes.")
def drop(path: Path, places: tuple[int, ...], everything: bool) -> None:
    """Remove refused envelopes for good: those at the PLACEs."""
    if everything == bool(places):
        raise click.UsageError("Name the places of what to drop, or give --all.")
    with _opened(path) as box:
        click.echo(f"{counted(box.drop(places), 'envelope')} dropped.")


@contextmanager
def _opened(path: Path) -> Iterator[Outbox]:
    box = Outbox.existing(path)
    try:
        yield box
    finally:
        box.close()


def _moment(text: str | None) -> str | None:
    """Write a moment of the outbox, as other commands show it."""
    return moment(None if text is None else datetime.fromisoformat(text))
