"""``python -m examples.demo``: see the package's own words."""

import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
from sqlalchemy.engine import make_url

from examples.demo import report
from examples.demo.bus import EMITTER, Bus
from examples.demo.check import compare
from examples.demo.failure import DemoFailed
from examples.demo.program import INTERRUPTIONS
from examples.demo.sending import send
from examples.demo.source import ALL_FLIGHTS, Source
from xbus.config import load
from xbus.errors import XbusError

EMBEDDED = "sqlite:///xbus.db"


@click.command()
@click.option("--db", envvar="DB", show_envvar=True, default=EMBEDDED, show_default=True, help="The journal's URL.")
@click.option("--flights", type=click.IntRange(1, ALL_FLIGHTS), default=ALL_FLIGHTS, help="Take only so many.")
@click.option("--folder", type=click.Path(path_type=Path), default="demo-output", show_default=True, help="For files.")
def main(db: str, flights: int, folder: Path) -> None:
    """Send all flights of a year through a bus, and check that they arrive.

    Exit codes: 0 all is there, 1 something is missing or failed, 130 interrupted.
    """
    for number in INTERRUPTIONS:
        signal.signal(number, _interrupt)
    try:
        is_right = demonstrate(db or EMBEDDED, flights, folder.absolute())
    except (DemoFailed, XbusError) as error:
        click.echo(f"The demo failed: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        click.echo("Interrupted; all programs are ended.", err=True)
        sys.exit(130)
    sys.exit(0 if is_right else 1)


def demonstrate(database: str, flights: int, folder: Path) -> bool:
    """The whole demo; whether everything arrived.

    Raises:
        DemoFailed: it could not be carried through.
        XbusError: the bus does not take the flights.
    """
    clock = Stopwatch()
    with clock.measure("download"):
        source = Source(folder / "download", flights)
    bus = Bus(_emptied(folder / "run"), database)
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
    journal = make_url(load(bus.config).database.url).render_as_string(hide_password=True)
    told = (
        *report.table(findings),
        "",
        report.times(clock.seconds),
        *report.files(bus.folder, journal, receipt.envelope_id),
    )
    click.echo("\n".join(("", *told)))
    return all(finding.is_right for finding in findings)


class Stopwatch:
    """Measures the parts of the demo.

    Attributes:
        seconds: how long each took.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Measure what happens in the block."""
        started = time.monotonic()
        yield
        self.seconds[part] = time.monotonic() - started


def _emptied(folder: Path) -> Path:
    """The folder, without what an earlier demo left there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
