"""``xbus parked`` shows parked envelopes and items; ``decide`` and ``correct`` have the commands that repair them."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import click

from xbus.admin.commands.parked.batches import batch
from xbus.admin.commands.parked.correct import correct
from xbus.admin.commands.parked.decide import drop, envelope_argument, event_option, resume, role_option
from xbus.admin.names import ROLE, SERVICE, TYPE
from xbus.admin.objects import of_parked_part
from xbus.admin.output import CAUSE, Output, counted, name_column, one_json
from xbus.admin.program import CommandGroup, config_option, database_url, limit_option, output_option, secrets_option
from xbus.admin.repair.moves import present_item
from xbus.admin.repair.places import find_place
from xbus.admin.repair.view import view
from xbus.admin.table import Column
from xbus.admin.watching import watch_option
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope, shorten
from xbus.broker.journal.operations.parked_list import Filters, ParkedSummary, list_parked
from xbus.broker.journal.readers.parked import list_parked_batches
from xbus.clock import SystemClock
from xbus.errors import Refused

HEADS = (
    "SINCE",
    name_column("ROLE"),
    name_column("WHAT"),
    Column("ATTEMPTS", wide_only=True),
    name_column("CODE"),
    CAUSE,
    "ENVELOPE",
)


@click.group(cls=CommandGroup)
def parked() -> None:
    """Show and repair what recipients refused for good: resume, correct, drop."""


for command in (resume, correct, drop, batch):
    parked.add_command(command)


@parked.command("list")
@config_option
@click.option("--role", type=ROLE, metavar="LOGIN", help="Only envelopes and items parked for this role.")
@click.option("--type", "event_type", type=TYPE, metavar="NAME", help="Only envelopes with events of this type.")
@click.option(
    "--service", type=SERVICE, metavar="NAME", help="Only envelopes and items parked for roles of this service."
)
@click.option("--code", metavar="CODE", help="Only envelopes and items parked with this code.")
@limit_option
@watch_option
@output_option("envelope and role")
def list_(
    config_path: Path | None,
    role: str | None,
    event_type: str | None,
    service: str | None,
    code: str | None,
    limit: int,
    output: Output,
) -> None:
    """Show parked envelopes, and items that were parked alone, the newest first."""
    filters = Filters(role=role, service=service, event_type=event_type, code=code)
    with reading(database_url(config_path)) as connection:
        found = list_parked(connection, filters, limit)
        batches = list_parked_batches(connection, limit=limit)
        ids = {} if output.as_json or output.is_wide else shorten(connection, [each.envelope_id for each in found])
    if output.as_json:
        output.objects(map(of_parked_part, found))
        return
    click.echo("\n".join(_list(found, ids, output)) if found else "Nothing is parked.")
    if batches:
        click.echo("Batches of readers are parked, too: xbus parked batch list shows them.")
    if len(found) == limit:
        click.echo("There may be more: give a larger --limit, or narrow the list")


def _list(found: list[ParkedSummary], ids: dict[UUID, str], output: Output) -> Iterator[str]:
    now = SystemClock().now()
    rows = [
        (
            output.when(summary.since, now),
            summary.role,
            _what(summary),
            summary.attempts,
            summary.code,
            summary.cause,
            ids.get(summary.envelope_id, summary.envelope_id),
        )
        for summary in found
    ]
    return output.table(HEADS, rows)


def _what(summary: ParkedSummary) -> str:
    """Word the parked part: the types of an envelope, or ``2 items of clients``."""
    types = ", ".join(summary.types)
    return types if summary.parked_items is None else f"{counted(summary.parked_items)} of {types}"


@parked.command()
@config_option
@envelope_argument
@role_option("Only for this role.")
@event_option
@click.option("--item", type=click.IntRange(0), metavar="INDEX", help="This item, counted from 0.")
@click.option("--items", "span", metavar="FROM:TO", help="These items, the last one included.")
@click.option(
    "--raw",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the bytes of --item there, as the role would get them.",
)
@secrets_option
@output_option()
def show(
    config_path: Path | None,
    envelope_id: str,
    role: str | None,
    event: str | None,
    item: int | None,
    span: str | None,
    raw: Path | None,
    show_secrets: bool,
    output: Output,
) -> None:
    """Show the roles and causes of a parked envelope, and its items: first those that failures name.

    Fields that the event type calls secret show as ***.
    """
    if raw is not None and item is None:
        raise click.UsageError("--raw needs --item: whose bytes?")
    if item is not None and span is not None:
        raise click.UsageError("give --item or --items, not both")
    wanted = _span(span) if item is None else (item, item)
    with reading(database_url(config_path)) as connection:
        named = resolve_envelope(connection, envelope_id)
        if raw is not None and item is not None:
            place = find_place(connection, named, role, event, item)
            _write(raw, present_item(connection, place))
            return
        found = view(connection, named, role, event, wanted, show_secrets=show_secrets)
    click.echo(one_json(found.plain()) if output.as_json else "\n".join(found.lines(output)))


def _span(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise click.UsageError(f"--items {text}: write the first and the last index, as in 0:9")
    return int(first), int(last)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise Refused(
            f"{path} can't be written ({error.strerror})", "name another file", code="file_unwritable"
        ) from error
    click.echo(f"{len(data)} bytes are in {path}.")
