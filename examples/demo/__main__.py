"""``python -m examples.demo``: see the package's own words."""

from pathlib import Path

import click

from examples.demo import report
from examples.demo.bus import EMITTER, Bus
from examples.demo.check import compare
from examples.demo.delay_counter import file_of
from examples.demo.flight_store import FILE
from examples.demo.running import Stopwatch, emptied, run
from examples.demo.sending import send
from examples.demo.source import ALL_FLIGHTS, Source

EMBEDDED = "sqlite:///xbus.db"


@click.command()
@click.option("--db", envvar="DB", show_envvar=True, default=EMBEDDED, show_default=True, help="The journal's URL.")
@click.option("--flights", type=click.IntRange(1, ALL_FLIGHTS), default=ALL_FLIGHTS, help="Take only so many.")
@click.option("--folder", type=click.Path(path_type=Path), default="demo-output", show_default=True, help="For files.")
def main(db: str, flights: int, folder: Path) -> None:
    """Send all flights of a year through a bus, and check that they arrive.

    Exit codes: 0 all is there, 1 something is missing or failed, 130 interrupted.
    """
    run(lambda: demonstrate(db or EMBEDDED, flights, folder.absolute()))


def demonstrate(database: str, flights: int, folder: Path) -> bool:
    """The whole demo; whether everything arrived.

    Raises:
        DemoFailed: it could not be carried through.
        XbusError: the bus does not take the flights.
    """
    clock = Stopwatch()
    with clock.measure("download"):
        source = Source(folder / "download", flights)
    bus = Bus(emptied(folder / "run"), database)
    with clock.measure("set-up"):
        bus.set_up()
        click.echo(f"The bus is set up: {bus.config}")
    with bus:
        with clock.measure("sending"):
            receipt = send(source, bus.front, EMITTER, bus.password, bus.check)
        click.echo(f"Sealed as envelope {receipt.envelope_id} at position {receipt.position}; delivering ...")
        with clock.measure("delivery"):
            bus.wait_until_delivered(receipt.envelope_id)
    with clock.measure("check"):
        findings = compare(source, bus.folder, receipt)
    told = (
        *report.table(findings),
        "",
        report.times(clock.seconds),
        *report.files(bus, receipt.envelope_id, {"Flights": FILE, "Delays": file_of(receipt.envelope_id)}),
    )
    click.echo("\n".join(("", *told)))
    return all(finding.is_right for finding in findings)


if __name__ == "__main__":
    main()
