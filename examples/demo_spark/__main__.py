"""``python -m examples.demo_spark``: see the package's own words."""

from pathlib import Path

import click

from examples.demo import report
from examples.demo.bus import EMITTER, RUN, Bus, Plan
from examples.demo.running import Stopwatch, emptied, run
from examples.demo.source import ALL_FLIGHTS, Source
from examples.demo_spark.check import compare, read_months
from examples.demo_spark.delay_store import FILE
from examples.demo_spark.picture import draw
from examples.demo_spark.sending import send
from examples.demo_spark.tables import FLIGHTS

EMBEDDED = "sqlite:///xbus.db"
PICTURE = Path("delays.svg")


@click.command()
@click.option("--db", envvar="DB", show_envvar=True, default=EMBEDDED, show_default=True, help="The journal's URL.")
@click.option("--flights", type=click.IntRange(1, ALL_FLIGHTS), default=ALL_FLIGHTS, help="Take only so many.")
@click.option("--folder", type=click.Path(path_type=Path), default="demo-output", show_default=True, help="For files.")
@click.option("--master", envvar="MASTER", show_envvar=True, default="local[*]", show_default=True, help="Spark's.")
@click.option("--min-items", type=click.IntRange(1), default=100_000, help="Hand events over as a whole from here on.")
def main(db: str, flights: int, folder: Path, master: str, min_items: int) -> None:
    """Send all flights of a year through a bus with a Spark worker, and check what comes out.

    Exit codes: 0 all is right, 1 something is wrong or failed, 130 interrupted.
    """
    plan = _plan(master or "local[*]", min_items)
    run(lambda: demonstrate(db or EMBEDDED, flights, folder.absolute(), plan))


def demonstrate(database: str, flights: int, folder: Path, plan: Plan) -> bool:
    """The whole demo; whether everything arrived, and is right.

    Raises:
        DemoFailed: it could not be carried through.
        XbusError: the bus does not take the flights.
    """
    clock = Stopwatch()
    with clock.measure("download"):
        source = Source(folder / "download", flights)
    bus = Bus(emptied(folder / "run-spark"), database, plan)
    with clock.measure("set-up"):
        bus.set_up()
        click.echo(f"The bus is set up: {bus.config}")
    with bus:
        with clock.measure("sending"):
            receipt = send(source, bus.front, EMITTER, bus.password, bus.check)
        click.echo(f"Sealed as envelope {receipt.envelope_id} at position {receipt.position}; Spark works on it ...")
        with clock.measure("delivery"):
            bus.wait_until_delivered(receipt.envelope_id)
    with clock.measure("check"):
        findings = compare(source, bus.folder, receipt)
    (bus.folder / PICTURE).write_text(draw(read_months(bus.folder).values()), encoding="utf-8")
    told = (
        *report.table(findings),
        "",
        report.times(clock.seconds),
        *report.files(bus, receipt.envelope_id, {"Delays": FILE, "Picture": PICTURE}),
    )
    click.echo("\n".join(("", *told)))
    return all(finding.is_right for finding in findings)


def _plan(master: str, min_items: int) -> Plan:
    worker = ("xbus-spark-worker", "--transform", "examples.demo_spark.delays:transform")
    items = ("--format", "json", "--schema", FLIGHTS.schema, "--min-items", str(min_items))
    return Plan(
        Path(__file__).with_name("flights.toml"),
        {
            "delays_1": (*worker, *items, "--master", master),
            "delay_store_1": (*RUN, "examples.demo_spark.delay_store:DelayStore"),
        },
    )


if __name__ == "__main__":
    main()
