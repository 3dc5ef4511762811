"""The emitter: all airlines and flights as one envelope, which arrives as a whole or not at all."""

from collections.abc import Callable

import click

from examples.demo.source import Source, flight
from xbus.emitter import Emitter, Receipt

STEP = 1000
"""How many flights the bar moves at a time."""

RETRY_SECONDS = 10.0
"""A broker on the same machine that does not answer for so long won't."""


def send(source: Source, url: str, login: str, password: str, all_is_well: Callable[[], None]) -> Receipt:
    """Send everything, under a progress bar.

    Args:
        source: what to send.
        url: the front of the bus.
        login: the emitter's.
        password: the emitter's.
        all_is_well: called now and then; what it raises cancels the envelope.
    """
    with (
        click.progressbar(length=source.flights, label="Sending flights") as bar,
        Emitter(url, login, password, retry_seconds=RETRY_SECONDS) as emitter,
        emitter.envelope() as envelope,
    ):
        with envelope.event("airlines") as airlines:
            for row in source.airline_rows():
                airlines.send(row)
        with envelope.event("flights", source.flights) as flights:
            for number, row in enumerate(source.flight_rows(), start=1):
                flights.send(flight(row))
                if number % STEP == 0:
                    all_is_well()
                    bar.update(STEP)
        bar.update(source.flights % STEP)
    return envelope.receipt
