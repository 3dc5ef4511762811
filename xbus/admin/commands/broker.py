"""``xbus broker``."""

import click

from xbus.admin.objects import JsonObject
from xbus.admin.output import Output, name_column
from xbus.admin.program import CommandGroup
from xbus.admin.signatures import CommandBus, command, shown
from xbus.broker.journal.leadership import KnownBroker, read_brokers

NONE = "No broker has led this journal on PostgreSQL, where one stands by for another."


@click.group(cls=CommandGroup)
def broker() -> None:
    """Show the brokers of the journal."""


@command(broker)
def list_(bus: CommandBus, output: Output = shown("broker")) -> None:
    """Show which broker leads, which ones stand by, and how long ago each looked at the lease."""
    found = bus.read(read_brokers)
    rows = [
        {
            name_column("NAME"): each.place.name,
            "DOES": "leads" if each.leads else "is gone" if each.is_gone else "stands by",
            "LOOKED": f"{each.looked:.1f} s ago",
            "FRONT": each.place.front,
            "BACK": each.place.back,
            "VERSION": each.place.version,
        }
        for each in found
    ]
    output.listing(found, _json, rows, NONE)


def _json(broker: KnownBroker) -> JsonObject:
    return {
        "broker": broker.place.name,
        "leads": broker.leads,
        "epoch": broker.epoch,
        "lease_seconds": broker.lasts,
        "looked_seconds": broker.looked,
        "front": broker.place.front,
        "back": broker.place.back,
        "version": broker.place.version,
        "process": broker.place.process,
    }
