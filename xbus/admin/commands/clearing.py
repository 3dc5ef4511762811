"""``xbus clearing``."""

import json
from pathlib import Path
from typing import NoReturn

import click

from xbus.admin.address import broker_address
from xbus.admin.output import escaped
from xbus.admin.program import Command, CommandGroup, config_option
from xbus.admin.secret import login_and_password, login_option, password_file_option
from xbus.emitter import Emitter
from xbus.errors import XbusError
from xbus.rpc.codec import Key, Value


@click.group(cls=CommandGroup)
def clearing() -> None:
    """See and clear items that a consumer could not understand.

    The consumer keeps them in its own clearing database. These commands ask it through the bus.
    """


def _asking(command: Command) -> Command:
    """Add the options of who asks whom."""
    options = (
        config_option,
        click.argument("item_id", type=int),
        click.option(
            "--type",
            "type_name",
            default="data_clearing",
            show_default=True,
            metavar="NAME",
            help="The event type of such requests.",
        ),
        login_option("The emitter's login"),
        password_file_option,
        click.option("--url", help="The front's address; by default that of the configuration file."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@clearing.command()
@_asking
def show(
    config_path: Path | None,
    item_id: int,
    type_name: str,
    login: str | None,
    password_file: Path | None,
    url: str | None,
) -> None:
    """Show the consumer's data of an item, as JSON."""
    address = broker_address("front", url, config_path)
    request = {"action": "get_item_details", "item_id": item_id}
    _ask(address, *login_and_password(login, password_file, address), type_name, request)


@clearing.command()
@_asking
@click.argument("fields", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--values",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also take the values of this map in JSON.",
)
def clear(
    config_path: Path | None,
    item_id: int,
    fields: tuple[str, ...],
    file: Path | None,
    type_name: str,
    login: str | None,
    password_file: Path | None,
    url: str | None,
) -> None:
    """Give the consumer these values of an item, and show its answer, as JSON.

    The command reads a value as JSON if it can, otherwise as text: number=7 is a number, number='"7"' a text.
    """
    address = broker_address("front", url, config_path)
    values = _values_of(file) if file else {}
    values.update(map(_field, fields))
    if not values:
        raise click.UsageError("say what the item shall be: NAME=VALUE, or --values FILE")
    request = {"action": "clear_item", "item_id": item_id, "values": values}
    _ask(address, *login_and_password(login, password_file, address), type_name, request)


def _ask(address: str, login: str, password: str, type_name: str, request: dict[str, object]) -> None:
    with Emitter(address, login, password) as emitter:
        reply = emitter.ask(type_name, request)
    click.echo(escaped(json.dumps(reply, indent=2, default=_plain, ensure_ascii=False)))


def _field(text: str) -> tuple[str, Value]:
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise click.UsageError(f'"{text}" is no NAME=VALUE')
    try:
        return name, _json(value)
    except ValueError:
        return name, value


def _values_of(file: Path) -> dict[Key, Value]:
    try:
        values = _json(file.read_bytes())
    except OSError as error:
        raise XbusError(
            f"{file} can't be read ({error.strerror})", "name a readable file", code="unreadable_file"
        ) from error
    except ValueError as error:
        raise XbusError(f"{file} is not JSON ({error})", "correct it", code="bad_values") from error
    if not isinstance(values, dict):
        raise XbusError(f"{file} is no map", 'write it as {"name": "value"}', code="bad_values")
    return values


def _json(text: str | bytes) -> Value:
    value: Value = json.loads(text, parse_constant=_no_constant)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")


def _plain(value: object) -> str:
    """Convert a value that JSON lacks: bytes to hexadecimal, moments to text."""
    return value.hex() if isinstance(value, bytes) else str(value)
