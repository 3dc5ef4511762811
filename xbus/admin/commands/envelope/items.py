"""``xbus envelope items``."""

from collections.abc import Iterator
from pathlib import Path

import click

from xbus.admin.output import counted, one_json
from xbus.admin.program import EnvelopeId, config_option, database_url, json_option, limit_option, secrets_option
from xbus.admin.search.items import EnvelopeItem, read_items_page
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.envelopes.details import read_position
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope


@click.command()
@config_option
@click.argument("envelope_id", type=EnvelopeId(), metavar="ENVELOPE")
@click.option("--event", metavar="NUMBER|ID", help="Begin with this event; by default with the first.")
@click.option(
    "--from", "first", type=click.IntRange(0), default=0, metavar="INDEX", help="Begin with this item, counted from 0."
)
@secrets_option
@limit_option
@json_option("item")
def items(
    config_path: Path | None,
    envelope_id: str,
    event: str | None,
    first: int,
    show_secrets: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Show the items of an envelope, as its emitter sent them.

    The command reads an item as msgpack, JSON or text. Of an open envelope it shows the items that the bus has so far.
    Fields that the event type calls secret show as ***.
    """
    with reading(database_url(config_path)) as connection:
        wanted = resolve_envelope(connection, envelope_id)
        position = read_position(connection, wanted)
        page = read_items_page(connection, wanted, position, event, first, limit, show_secrets=show_secrets)
    if as_json:
        for item in page.items:
            click.echo(one_json(item.plain()))
        return
    click.echo("\n".join(_told(page.items)) if page.items else "No items.")
    if page.next_event is not None:
        click.echo(f"There are more: --event {page.next_event} --from {page.next_index}")


def _told(found: tuple[EnvelopeItem, ...]) -> Iterator[str]:
    event_number = 0
    for item in found:
        if item.event_number != event_number:
            event_number = item.event_number
            yield f"event {event_number}, {item.type_name}"
        payload = item.payload
        yield f"  item {item.index}, {payload.kind}, {counted(len(item.data), 'byte')}"
        yield from (f"    {line}" for line in payload.lines())
