"""``xbus broker``."""

import click

from xbus.admin.arguments import OPTIONAL_REASON
from xbus.admin.output import Output, name_column
from xbus.admin.program import CommandGroup
from xbus.admin.signatures import CommandBus, command, option, shown
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.leadership import KnownBroker, find_successor, hand_over, read_brokers

NONE = "No broker has led this journal on PostgreSQL, where one stands by for another."


@click.group(cls=CommandGroup)
def broker() -> None:
    """Show the brokers of the journal, and have another one lead."""


@command(broker)
def list_(bus: CommandBus, output: Output = shown("broker")) -> None:
    """Show which broker leads, which ones stand by, and how long ago each looked at the lease."""
    found = bus.read(read_brokers)
    rows = [
        {
            name_column("NAME"): each.place.name,
            "DOES": each.does,
            "SINCE": each.since and output.when(each.since),
            "LOOKED": f"{each.looked:.1f} s ago",
            "FRONT": each.place.front,
            "BACK": each.place.back,
            "VERSION": each.place.version,
        }
        for each in found
    ]
    output.listing(found, KnownBroker.told, rows, NONE)


@command(broker)
def handover(
    bus: CommandBus,
    to: str | None = option("The broker that is to lead; any that stands by if it is left out.", metavar="NAME"),
    reason: str = OPTIONAL_REASON,
) -> None:
    """Have the leader end in order, and another broker lead. The supervisor of the first starts it again: it stands by.

    Calls that are under way are repeated at the next leader.
    """
    decision = bus.decision(reason)
    successor = bus.read(lambda connection: find_successor(connection, to))
    act = act_here(decision.at, "hands over", f"lease to broker {successor.name}", reason=decision.reason)
    with bus.writing() as connection:
        note_acts(connection, [act])
    # By itself, as a transaction that waits for others keeps the leader from renewing its lease.
    with bus.writing() as connection:
        hand_over(connection, successor)
    click.echo(f"The broker {successor.name} leads next: see xbus broker list.")
