"""The same figures by a plain computation over the bare text, and the comparison."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from examples.demo.bus import EMITTER
from examples.demo.check import Finding
from examples.demo.failure import DemoFailed
from examples.demo.source import Row, Source
from examples.demo_spark.delay_store import COLUMNS, FILE, MONTHS
from examples.demo_spark.figures import Month
from examples.demo_spark.tables import FLIGHTS, REFERENCES, rows_of
from xbus.emitter import Receipt

STORE = "delay_store_1"
UNKNOWN = "NA"

Months = dict[tuple[str, int], Month]


def compare(source: Source, folder: Path, receipt: Receipt) -> list[Finding]:
    """Everything that should have arrived, beside what has.

    Args:
        source: what was sent.
        folder: where the consumer ran.
        receipt: of the envelope.

    Raises:
        DemoFailed: the consumer has not written its file.
    """
    expected, found = sum_up(source), read_months(folder)
    others = _rows(folder, MONTHS) - len(found.keys() & expected.keys())
    sizes = {table.name: sum(1 for _ in rows_of(source, table)) for table in (*REFERENCES, FLIGHTS)}
    return [
        Finding("rows sent", EMITTER, sum(sizes.values()), receipt.items),
        *(Finding(f"{table.name} stored", STORE, sizes[table.name], _rows(folder, table.name)) for table in REFERENCES),
        *_summed_up(expected, found),
        Finding("airline months that should not be", STORE, 0, others),
    ]


def sum_up(source: Source) -> Months:
    """The figures of each airline and month, one flight after another."""
    names = {row["carrier"]: row["name"] for row in source.table_rows("airlines")}
    planes = {row["tailnum"]: row for row in source.table_rows("planes")}
    wet = {(row["origin"], row["time_hour"]) for row in source.table_rows("weather") if float(row["precip"]) > 0}
    months: Months = {}
    for flight in source.flight_rows():
        key = names[flight["carrier"]], int(flight["month"])
        month = months.setdefault(key, Month(*key))
        month.flights += 1
        if flight["dep_time"] == UNKNOWN:
            month.cancelled += 1
        else:
            _count(month, flight, planes.get(flight["tailnum"]), (flight["origin"], flight["time_hour"]) in wet)
    return months


def read_months(folder: Path) -> Months:
    """The figures that the consumer has stored."""
    rows = _select(folder, f"SELECT {', '.join(COLUMNS[MONTHS])} FROM {MONTHS}")
    return {(row[0], row[1]): Month(*row) for row in rows}


def _count(month: Month, flight: Row, plane: Row | None, is_wet: bool) -> None:
    delay = max(0, int(flight["dep_delay"]))
    month.late += delay > 0
    month.minutes += delay
    if plane is not None:
        month.seats += int(plane["seats"])
        if plane["year"] != UNKNOWN:
            month.plane_years += int(flight["year"]) - int(plane["year"])
            month.aged += 1
    if is_wet:
        month.wet += 1
        month.wet_late += delay > 0
        month.wet_minutes += delay


def _summed_up(expected: Months, found: Months) -> Iterator[Finding]:
    def finding(what: str, name: str) -> Finding:
        return Finding(what, STORE, _sum(expected, name), _sum(found, name))

    yield finding("flights summed up", "flights")
    yield finding("late departures", "late")
    yield finding("minutes late", "minutes")
    yield finding("seats of the departures", "seats")
    yield finding("departures in rain or snow", "wet")
    all_right = sum(found.get(key) == month for key, month in expected.items())
    yield Finding("airline months, each figure right", STORE, len(expected), all_right)


def _sum(months: Months, name: str) -> int:
    return sum(getattr(month, name) for month in months.values())


def _rows(folder: Path, table: str) -> int:
    ((rows,),) = _select(folder, f"SELECT count(*) FROM {table}")
    return int(rows)


def _select(folder: Path, statement: str) -> list[Any]:
    file = folder / FILE
    if not file.exists():
        raise DemoFailed(f"{file} is missing")
    with closing(sqlite3.connect(file)) as database:
        return database.execute(statement).fetchall()
