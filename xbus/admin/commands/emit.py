"""``xbus emit``."""

import sys
from collections.abc import Callable
from pathlib import Path

import click

from xbus.admin.address import broker_address
from xbus.admin.items import ItemFile
from xbus.admin.program import config_option
from xbus.admin.secret import password_file_option, password_of
from xbus.emitter import Emitter, Receipt
from xbus.errors import Refused

OF_THE_ITEM = frozenset({"bad_items", "item_too_large"})
"""Codes of refusals that an item itself is the reason for."""


@click.command()
@config_option
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--type", "type_name", required=True, metavar="NAME", help="The event type.")
@click.option("--login", envvar="XBUS_LOGIN", show_envvar=True, prompt=True, help="The emitter's login.")
@password_file_option
@click.option("--url", help="The front's address; the configuration file tells it too.")
def emit(
    config_path: Path | None, path: Path, type_name: str, login: str, password_file: Path | None, url: str | None
) -> None:
    """Send the items of FILE (.csv or .jsonl) as one envelope: all of them, or none.

    A row of CSV is sent as a map from the names in the first line to texts, a line of JSON as its value.
    """
    address = broker_address("front", url, config_path)
    with ItemFile(path) as items:
        password = password_of(login, password_file)
        with (
            click.progressbar(length=items.size, label=f"Sending {path.name}", file=sys.stderr) as bar,
            Emitter(address, login, password) as emitter,
        ):
            receipt = _send(emitter, type_name, items, bar.update)
    click.echo(f"{receipt.items:,} items sent: envelope {receipt.envelope_id}, position {receipt.position:,}")


def _send(emitter: Emitter, type_name: str, items: ItemFile, on_bytes: Callable[[int], object]) -> Receipt:
    with emitter.envelope() as envelope, envelope.event(type_name) as event:
        for item in items.read(on_bytes):
            try:
                event.send(item)
            except Refused as error:
                if error.code in OF_THE_ITEM:
                    items.refuse(error.cause, error)
                raise
    return envelope.receipt
