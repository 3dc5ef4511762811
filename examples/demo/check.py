"""Compares what the consumers have with what the source says, counted here once more from the bare text."""

import csv
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from examples.demo.bus import EMITTER
from examples.demo.delay_counter import file_of
from examples.demo.failure import DemoFailed
from examples.demo.flight_store import FILE
from examples.demo.source import Source
from xbus.emitter import Receipt

STORE = "flight_store_1"
COUNTER = "delay_counter_1"


@dataclass(frozen=True)
class Finding:
    """One line of the comparison.

    Attributes:
        what: the figure, in words.
        where: whose it is.
        expected: what the source says.
        found: what is there.
    """

    what: str
    where: str
    expected: int
    found: int

    @property
    def is_right(self) -> bool:
        return self.expected == self.found


@dataclass
class Airline:
    """An airline's figures by the source."""

    name: str
    flights: int = 0
    cancelled: int = 0
    miles: int = 0
    late: int = 0
    minutes: int = 0

    @property
    def left(self) -> int:
        """The flights that were not cancelled."""
        return self.flights - self.cancelled


def compare(source: Source, folder: Path, receipt: Receipt) -> list[Finding]:
    """Everything that should have arrived, beside what has.

    Args:
        source: what was sent.
        folder: where the consumers ran.
        receipt: of the envelope.

    Raises:
        DemoFailed: a consumer has not written its file.
    """
    airlines = list(_count(source).values())
    sent = sum(airline.flights for airline in airlines)
    return [
        Finding("airlines and flights sent", EMITTER, len(airlines) + sent, receipt.items),
        *_stored(airlines, _written(folder / FILE)),
        *_counted(airlines, _written(folder / file_of(receipt.envelope_id))),
    ]


def _written(file: Path) -> Path:
    if not file.exists():
        raise DemoFailed(f"{file} is missing")
    return file


def _count(source: Source) -> dict[str, Airline]:
    airlines = {row["carrier"]: Airline(row["name"]) for row in source.airline_rows()}
    for row in source.flight_rows():
        airline = airlines[row["carrier"]]
        airline.flights += 1
        if row["dep_time"] == "NA":
            airline.cancelled += 1
            continue
        airline.miles += int(row["distance"])
        if not row["dep_delay"].startswith("-") and row["dep_delay"] != "0":
            airline.late += 1
            airline.minutes += int(row["dep_delay"])
    return airlines


def _stored(airlines: list[Airline], file: Path) -> Iterator[Finding]:
    with closing(sqlite3.connect(file)) as database:
        names = dict(database.execute("SELECT name, carrier FROM airline"))
        rows = database.execute("SELECT airline, count(*), sum(distance) FROM flight GROUP BY airline")
        found = {name: (flights, miles) for name, flights, miles in rows}
    flying = [airline for airline in airlines if airline.left]
    all_right = [airline for airline in flying if found.get(airline.name) == (airline.left, airline.miles)]
    flights = sum(flights for flights, _ in found.values())
    yield Finding("airlines stored", STORE, len(airlines), len(names))
    yield Finding("flights stored", STORE, sum(airline.left for airline in airlines), flights)
    yield Finding("airlines with all flights, miles", STORE, len(flying), len(all_right))


def _counted(airlines: list[Airline], file: Path) -> Iterator[Finding]:
    with file.open(newline="", encoding="utf-8") as opened:
        found = {
            row["airline"]: (int(row["flights"]), int(row["late"]), int(row["minutes"]))
            for row in csv.DictReader(opened)
        }
    all_right = [
        airline for airline in airlines if found.get(airline.name) == (airline.left, airline.late, airline.minutes)
    ]
    flights = sum(flights for flights, _, _ in found.values())
    late = sum(late for _, late, _ in found.values())
    yield Finding("flights counted", COUNTER, sum(airline.left for airline in airlines), flights)
    yield Finding("late flights counted", COUNTER, sum(airline.late for airline in airlines), late)
    yield Finding("airlines with all delays, minutes", COUNTER, len(airlines), len(all_right))
