"""``xbus outbox``."""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from shlex import quote

import click

from xbus.admin.address import TIMEOUT, CommandLogin, way_to
from xbus.admin.objects import of_outbox
from xbus.admin.output import CAUSE, Output, Row, counted, facts, moment, name_column
from xbus.admin.program import ROW_ID, CommandGroup
from xbus.admin.signatures import CommandBus, argument, command, option, shown
from xbus.emitter.flushing import flush_outbox
from xbus.emitter.outbox import Outbox, OutboxStatus, QueuedEnvelope
from xbus.errors import Refused

FILE = argument(metavar="FILE")
PLACES = argument(ROW_ID, metavar="[PLACE]...")


@click.group(cls=CommandGroup)
def outbox() -> None:
    """Manage an emitter's outbox: the file that keeps its envelopes while the bus is away."""


@command(outbox)
def status(path: Path = FILE, output: Output = shown()) -> None:
    """Show the waiting and the refused envelopes of FILE, and the obstacle, if any."""
    with closing(Outbox.existing(path)) as box:
        found = box.status()
    output.detail(of_outbox(found), _told(found, output))


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


@command(outbox)
def flush(
    bus: CommandBus,
    path: Path = FILE,
    way: CommandLogin = way_to("front", "The emitter's login"),
    timeout: float = TIMEOUT,
) -> None:
    """Send all waiting envelopes of FILE, in order; set refused ones aside."""
    flushed = flush_outbox(path, way.address, *way.login_and_password(), timeout)
    click.echo(f"{counted(flushed.sent, 'envelope')} sent.")
    if flushed.refused:
        raise Refused(
            f"{counted(flushed.refused, 'envelope')} refused by the bus",
            f"see why with xbus outbox status {quote(str(path))}",
        )


@command(outbox)
def retry(path: Path = FILE, places: tuple[int, ...] = PLACES) -> None:
    """Put refused envelopes back in line, at their old place: those at the PLACEs, or all."""
    with closing(Outbox.existing(path)) as box:
        click.echo(f"{counted(box.retry(places), 'envelope')} put back.")


@command(outbox)
def drop(
    path: Path = FILE,
    places: tuple[int, ...] = PLACES,
    everything: bool = option("Remove all refused envelopes.", None, "--all"),
) -> None:
    """Remove refused envelopes for good: those at the PLACEs."""
    if everything == bool(places):
        raise click.UsageError("Name the places of what to drop, or give --all.")
    with closing(Outbox.existing(path)) as box:
        click.echo(f"{counted(box.drop(places), 'envelope')} dropped.")


def _moment(text: str | None) -> str | None:
    """Write a moment of the outbox, as other commands show it."""
    return moment(None if text is None else datetime.fromisoformat(text))
