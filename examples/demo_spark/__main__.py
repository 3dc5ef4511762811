"""``python -m examples.demo_spark``: see the package's own words."""

from collections.abc import Mapping
from pathlib import Path

import click

from examples.demo.bus import RUN, Plan
from examples.demo.course import Demo, demonstrate, options
from examples.demo.running import run
from examples.demo_spark.check import compare, read_months
from examples.demo_spark.delay_store import FILE
from examples.demo_spark.picture import draw
from examples.demo_spark.tables import FLIGHTS, REFERENCES, items_of
from xbus.emitter import Receipt

PICTURE = Path("delays.svg")


@click.command()
@options
@click.option("--master", envvar="MASTER", show_envvar=True, default="local[*]", show_default=True, help="Spark's.")
@click.option("--min-items", type=click.IntRange(1), default=100_000, help="Hand events over as a whole from here on.")
def main(db: str, flights: int, folder: Path, master: str, min_items: int) -> None:
    """Send all flights of a year through a bus with a Spark worker, and check what comes out.

    Exit codes: 0 all is right, 1 something is wrong or failed, 130 interrupted.
    """
    demo = Demo(
        folder="run-spark",
        plan=_plan(master or "local[*]", min_items),
        tables=lambda source: {table.name: items_of(source, table) for table in REFERENCES},
        flights=lambda source: items_of(source, FLIGHTS),
        compare=compare,
        results=_draw,
    )
    run(lambda: demonstrate(demo, db, flights, folder))


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


def _draw(folder: Path, receipt: Receipt) -> Mapping[str, Path]:
    (folder / PICTURE).write_text(draw(read_months(folder).values()), encoding="utf-8")
    return {"Delays": FILE, "Picture": PICTURE}


if __name__ == "__main__":
    main()
