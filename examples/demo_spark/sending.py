"""The emitter: the tables and all flights as one envelope, which arrives as a whole or not at all."""

from collections.abc import Callable

import click

from examples.demo.sending import RETRY_SECONDS, STEP
from examples.demo.source import Source
from examples.demo_spark.tables import FLIGHTS, REFERENCES, rows_of
from xbus.emitter import Emitter, Receipt


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
        for table in REFERENCES:
            with envelope.event(table.name) as event:
                for item in table.items(rows_of(source, table)):
                    event.send(item)
        with envelope.event(FLIGHTS.name, source.flights) as flights:
            for number, item in enumerate(FLIGHTS.items(rows_of(source, FLIGHTS)), start=1):
                flights.send(item)
                if number % STEP == 0:
                    all_is_well()
                    bar.update(STEP)
        bar.update(source.flights % STEP)
    return envelope.receipt
