"""``xbus clearing``."""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import cast

import click

from xbus.admin.address import CommandLogin, way_to
from xbus.admin.arguments import LIMIT, SHOW_SECRETS
from xbus.admin.clearing_databases import ClearingDatabase, clearing_databases, of_clearing_item, read_all
from xbus.admin.output import STATE, Column, Output, escaped, name_column
from xbus.admin.program import CommandGroup
from xbus.admin.repair.payload import Payload, mask_details, showable
from xbus.admin.signatures import CommandBus, argument, command, option, shown
from xbus.broker.journal.database.clearing_items import CLEARING_STATES, ClearingItem
from xbus.broker.journal.operations.event_types import read_secret_fields
from xbus.ending import exit_code, tell
from xbus.errors import Refused, XbusError
from xbus.json_text import LossyJson, parse_json
from xbus.rpc.codec import Key, Value

ALL = "all"

SEE_ITEMS = "xbus clearing list --state all shows the items, and xbus clearing show one of them"


@click.group(cls=CommandGroup)
def clearing() -> None:
    """See and clear items that a consumer could not understand.

    The consumer keeps them in its own clearing database. These commands find it, and ask it, through the bus.
    """


WAY = way_to("front", "The emitter's login")
ITEM_ID = argument(click.IntRange(-(2**63), 2**63 - 1))
TYPE_NAME = option(
    "The event type of such requests.", None, "--type", default="data_clearing", show_default=True, metavar="NAME"
)


@command(clearing)
def list_(
    bus: CommandBus,
    type_name: str | None = option(
        "Only of the consumer that answers requests of this type.", None, "--type", metavar="NAME"
    ),
    state: str = option(
        "Only items in this state.",
        click.Choice([*CLEARING_STATES, ALL]),
        default=CLEARING_STATES[0],
        show_default=True,
    ),
    before: int | None = option("Only items below this one.", click.IntRange(1), metavar="ID"),
    limit: int = LIMIT,
    way: CommandLogin = WAY,
    show_secrets: bool = SHOW_SECRETS,
    output: Output = shown("item"),
) -> None:
    """Show the items that consumers keep for a person, the newest first.

    The bus tells the addresses of the clearing databases. The command reads them there, as this machine's user.
    Fields that an event type calls secret are hidden, if the configuration is at hand.
    """
    with way.emitter() as emitter:
        databases = list(clearing_databases(emitter.consumers(), type_name))
    secrets = _secrets(bus, way, show_secrets)
    listed = read_all(databases, None if state == ALL else state, before, limit)
    found = listed.shown(secrets)
    if output.as_json:
        output.objects(of_clearing_item(item, payload.plain, database) for item, database, payload in found)
    elif found:
        click.echo("\n".join(_list(found, output, several=len(databases) > 1)))
    elif not listed.errors:
        click.echo("No items." if databases else "No registered consumer offers clearing to this emitter.")
    for error in listed.errors:
        tell("xbus", error)
    if listed.errors:
        click.get_current_context().exit(exit_code(listed.errors[0]))


def _secrets(bus: CommandBus, way: CommandLogin, show_secrets: bool) -> Mapping[str, Set[str]]:
    """Read which fields are secret: the journal knows, which an emitter's machine does not reach."""
    if show_secrets or (way.url is not None and bus.path is None):
        return {}
    with bus.reading() as connection:
        return read_secret_fields(connection)


def _list(
    found: Sequence[tuple[ClearingItem, ClearingDatabase, Payload]], output: Output, *, several: bool
) -> Iterator[str]:
    rows = [
        {
            Column("ID", to_right=True): str(item.id),
            STATE: item.state,
            name_column("TYPE"): item.type,
            name_column("ITEM"): item.item_type,
            "RECEIVED": output.when(item.received_at),
            Column("DATA", narrows=20): " ".join(payload.lines()),
            Column("CONSUMER", optional=True): database.consumer if several else None,
            Column("ASKED BY", optional=True): ", ".join(database.request_types) if several else None,
            Column("EVENT", wide_only=True): item.event_id,
        }
        for item, database, payload in found
    ]
    return output.table(rows)


@command(clearing)
def show(
    bus: CommandBus,
    item_id: int = ITEM_ID,
    type_name: str = TYPE_NAME,
    way: CommandLogin = WAY,
    show_secrets: bool = SHOW_SECRETS,
) -> None:
    """Show the consumer's data of an item, as JSON."""
    request = {"action": "get_item_details", "item_id": item_id}
    reply = _ask(way, type_name, request)
    _show(reply, _secrets(bus, way, show_secrets))


@command(clearing)
def clear(
    bus: CommandBus,
    item_id: int = ITEM_ID,
    type_name: str = TYPE_NAME,
    way: CommandLogin = WAY,
    show_secrets: bool = SHOW_SECRETS,
    fields: tuple[str, ...] = argument(metavar="[NAME=VALUE]..."),
    file: Path | None = option("Also take the values of this map in JSON.", None, "--values"),
) -> None:
    """Give the consumer these values of an item, and show its answer, as JSON.

    The command reads a value as JSON if it can, otherwise as text: number=7 is a number, number='"7"' a text.
    """
    values = _values_of(file) if file else {}
    values.update(map(_field, fields))
    if not values:
        raise click.UsageError("say what the item shall be: NAME=VALUE, or --values FILE")
    request = {"action": "clear_item", "item_id": item_id, "values": values}
    reply = _ask(way, type_name, request)
    _show(reply, _secrets(bus, way, show_secrets))


def _ask(way: CommandLogin, type_name: str, request: dict[str, object]) -> Value:
    with way.emitter() as emitter:
        try:
            return emitter.ask(type_name, request)
        except Refused as refusal:
            if refusal.code != "reply_refused":
                raise
            # An emitter would correct its event; a person has another item, or other values.
            raise Refused(refusal.cause, SEE_ITEMS, code=refusal.code) from refusal


def _show(reply: Value, secrets: Mapping[str, Set[str]]) -> None:
    (shown,) = mask_details([reply], secrets)
    click.echo(escaped(json.dumps(showable(shown), indent=2, default=_plain, ensure_ascii=False)))


def _field(text: str) -> tuple[str, Value]:
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise click.UsageError(f'"{text}" is no NAME=VALUE')
    try:
        return name, cast(Value, parse_json(value))
    except LossyJson as error:
        raise click.UsageError(f"{name}: {error}") from error
    except ValueError:
        return name, value


def _values_of(file: Path) -> dict[Key, Value]:
    try:
        values = parse_json(file.read_bytes())
    except OSError as error:
        raise XbusError(
            f"{file} can't be read ({error.strerror})", "name a readable file", code="unreadable_file"
        ) from error
    except ValueError as error:
        raise XbusError(f"{file} is not JSON ({error})", "correct it", code="bad_values") from error
    if not isinstance(values, dict):
        raise XbusError(f"{file} is no map", 'write it as {"name": "value"}', code="bad_values")
    return values


def _plain(value: object) -> str:
    """Convert a value that JSON lacks: bytes to hexadecimal, moments to text."""
    return value.hex() if isinstance(value, bytes) else str(value)
