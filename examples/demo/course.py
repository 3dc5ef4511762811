"""The course of a demo, from the download to the last line; what is each demo's own it is told."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from examples.demo import report
from examples.demo.bus import Bus, Plan
from examples.demo.check import Finding
from examples.demo.running import Stopwatch, emptied
from examples.demo.sending import send
from examples.demo.source import ALL_FLIGHTS, Source
from xbus.emitter import Receipt

EMBEDDED = "sqlite:///xbus.db"


@dataclass(frozen=True)
class Demo:
    """What one demo has of its own.

    Attributes:
        folder: what its programs work in, in the folder for files.
        plan: its bus.
        tables: what is sent ahead of the flights: the items of each event type.
        flights: the items that the flights are sent as.
        compare: what should have arrived beside what has: from the source, the folder and the receipt.
        results: the files that came of it, in the folder, by what is in them; called once all is delivered.
    """

    folder: str
    plan: Plan
    tables: Callable[[Source], Mapping[str, Iterable[Any]]]
    flights: Callable[[Source], Iterable[Any]]
    compare: Callable[[Source, Path, Receipt], Sequence[Finding]]
    results: Callable[[Path, Receipt], Mapping[str, Path]]


def options(command: Callable[..., None]) -> Callable[..., None]:
    """What can be chosen of every demo: ``--db``, ``--flights`` and ``--folder``."""
    for option in (_FOLDER, _FLIGHTS, _DATABASE):
        command = option(command)
    return command


_DATABASE = click.option(
    "--db", envvar="DB", show_envvar=True, default=EMBEDDED, show_default=True, help="The journal's URL."
)
_FLIGHTS = click.option(
    "--flights", type=click.IntRange(1, ALL_FLIGHTS), default=ALL_FLIGHTS, help="Take only so many."
)
_FOLDER = click.option(
    "--folder", type=click.Path(path_type=Path), default="demo-output", show_default=True, help="For files."
)


def demonstrate(demo: Demo, database: str, flights: int, folder: Path) -> bool:
    """The whole demo; whether everything arrived, and is right.

    Args:
        database: the URL of the journal; empty for an SQLite file in the folder.
        flights: how many are taken.
        folder: for files.

    Raises:
        DemoFailed: it could not be carried through.
        XbusError: the bus does not take the flights.
    """
    folder = folder.absolute()
    clock = Stopwatch()
    with clock.measure("download"):
        source = Source(folder / "download", flights)
    bus = Bus(emptied(folder / demo.folder), database or EMBEDDED, demo.plan)
    with clock.measure("set-up"):
        bus.set_up()
        click.echo(f"The bus is set up: {bus.config}")
    with bus:
        with clock.measure("sending"):
            receipt = send(source, demo.tables(source), demo.flights(source), bus)
        click.echo(f"Sealed as envelope {receipt.envelope_id} at position {receipt.position}; delivering ...")
        with clock.measure("delivery"):
            bus.wait_until_delivered(receipt.envelope_id)
    with clock.measure("check"):
        findings = demo.compare(source, bus.folder, receipt)
    told = (
        *report.table(findings),
        "",
        report.times(clock.seconds),
        *report.files(bus, receipt.envelope_id, demo.results(bus.folder, receipt)),
    )
    click.echo("\n".join(("", *told)))
    return all(finding.is_right for finding in findings)
