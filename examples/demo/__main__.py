"""``python -m examples.demo``: see the package's own words."""

from pathlib import Path

import click

from examples.demo.bus import RUN, Plan
from examples.demo.check import compare
from examples.demo.course import Demo, demonstrate, options
from examples.demo.delay_counter import file_of
from examples.demo.flight_store import FILE
from examples.demo.running import run
from examples.demo.source import flight

DEMO = Demo(
    folder="run",
    plan=Plan(
        Path(__file__).with_name("flights.toml"),
        {
            "airline_names_1": (*RUN, "examples.demo.airline_names:AirlineNames"),
            "flight_store_1": (*RUN, "examples.demo.flight_store:FlightStore"),
            "delay_counter_1": (*RUN, "examples.demo.delay_counter:DelayCounter"),
        },
    ),
    tables=lambda source: {"airlines": source.airline_rows()},
    flights=lambda source: map(flight, source.flight_rows()),
    compare=compare,
    results=lambda folder, receipt: {"Flights": FILE, "Delays": file_of(receipt.envelope_id)},
)


@click.command()
@options
def main(db: str, flights: int, folder: Path) -> None:
    """Send all flights of a year through a bus, and check that they arrive.

    Exit codes: 0 all is there, 1 something is missing or failed, 130 interrupted.
    """
    run(lambda: demonstrate(DEMO, db, flights, folder))


if __name__ == "__main__":
    main()
