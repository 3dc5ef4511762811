"""The emitter: some tables and all flights as one envelope, which arrives as a whole or not at all."""

from collections.abc import Iterable, Mapping
from typing import Any

import click

from examples.demo.bus import EMITTER, Bus
from examples.demo.source import Source
from xbus.emitter import Emitter, Receipt

STEP = 1000
"""How many flights the bar moves at a time."""

RETRY_SECONDS = 10.0
"""A broker on the same machine that does not answer for so long won't."""


def send(source: Source, tables: Mapping[str, Iterable[Any]], flights: Iterable[Any], bus: Bus) -> Receipt:
    """Send everything, under a progress bar.

    Args:
        source: where it comes from.
        tables: what comes ahead of the flights: the items of each event type.
        flights: the items that the flights are sent as.
        bus: where it is sent to; a program of it that has ended cancels the envelope.
    """
    with (
        click.progressbar(length=source.flights, label="Sending flights") as bar,
        Emitter(bus.front, EMITTER, bus.password, retry_seconds=RETRY_SECONDS) as emitter,
        emitter.envelope() as envelope,
    ):
        for type_name, items in tables.items():
            with envelope.event(type_name) as event:
                event.send_all(items)
        with envelope.event("flights", source.flights) as event:
            for number, item in enumerate(flights, start=1):
                event.send(item)
                if number % STEP == 0:
                    bus.check()
                    bar.update(STEP)
        bar.update(source.flights % STEP)
    return envelope.receipt
