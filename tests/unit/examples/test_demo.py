"""The demo's recipients do what they say, and its comparison misses nothing."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from examples.demo.airline_names import AirlineNames
from examples.demo.check import compare
from examples.demo.delay_counter import DelayCounter, file_of
from examples.demo.failure import DemoFailed
from examples.demo.flight_store import FlightStore
from examples.demo.source import Row, Source, flight
from xbus.emitter import Receipt
from xbus.recipient import Batch, Envelope, Event, Item, Refusal

LATE = {"carrier": "UA", "flight": "1", "dep_time": "517", "dep_delay": "7", "distance": "100"}
EARLY = {"carrier": "UA", "flight": "2", "dep_time": "530", "dep_delay": "-2", "distance": "20"}
CANCELLED = {"carrier": "AA", "flight": "3", "dep_time": "NA", "dep_delay": "NA", "distance": "3"}
PLACES = {"time_hour": "2013-01-01T10:00:00Z", "origin": "EWR", "dest": "IAH"}

RECEIPT = Receipt("01a1fbd9-2912-7a70-896b-340cc956e8db", position=1, events=2, items=5, hash=b"")


class ThreeFlights(Source):
    """Two airlines and three flights, one of which was cancelled."""

    def __init__(self) -> None:
        self.flights = 3

    def airline_rows(self) -> Iterator[Row]:
        yield {"carrier": "UA", "name": "United"}
        yield {"carrier": "AA", "name": "American"}

    def flight_rows(self) -> Iterator[Row]:
        for row in (LATE, EARLY, CANCELLED):
            yield {**PLACES, **row}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def deliver(*recipients: FlightStore | DelayCounter, times: int = 1) -> None:
    """Take an envelope with all airlines and flights through the worker to consumers, as the bus would."""
    worker = AirlineNames()
    source = ThreeFlights()
    for consumer in recipients:
        consumer.on_start()
    for _ in range(times):
        for consumer in recipients:
            envelope = Envelope(RECEIPT.envelope_id)
            for event, items in (
                (Event("airlines-1", "airlines", envelope), [*source.airline_rows()]),
                (Event("flights-1", "flights", envelope), [flight(row) for row in source.flight_rows()]),
            ):
                worker.on_event_start(event)
                batch = Batch([Item.of(item).data for item in items], 0)
                out = cast("list[Item]", worker.on_batch(event, batch))
                consumer.on_event_start(event)
                consumer.on_batch(event, Batch([item.data for item in out], 0, [item.indices for item in out]))
            consumer.commit(envelope)
    for consumer in recipients:
        consumer.on_stop()


def wrong(folder: Path) -> list[str]:
    """What the comparison finds wrong."""
    return [finding.what for finding in compare(ThreeFlights(), folder, RECEIPT) if not finding.is_right]


def test_all_is_right_when_all_has_arrived(folder: Path) -> None:
    deliver(FlightStore(), DelayCounter())

    assert {finding.what: finding.found for finding in compare(ThreeFlights(), folder, RECEIPT)} == {
        "airlines and flights sent": 5,
        "airlines stored": 2,
        "flights stored": 2,
        "airlines with all flights, miles": 1,
        "flights counted": 2,
        "late flights counted": 1,
        "airlines with all delays, minutes": 2,
    }
    assert wrong(folder) == []


def test_what_comes_again_counts_once(folder: Path) -> None:
    deliver(FlightStore(), DelayCounter(), times=2)

    assert wrong(folder) == []


def test_what_is_rolled_back_is_gone(folder: Path) -> None:
    store = FlightStore()
    store.on_start()
    event = Event("airlines-1", "airlines", Envelope(RECEIPT.envelope_id))
    store.on_batch(event, Batch([Item.of({"carrier": "UA", "name": "United"}).data], 0))
    store.rollback(event.envelope)
    store.on_stop()

    with closing(sqlite3.connect(folder / "flights.db")) as database:
        assert database.execute("SELECT count(*) FROM airline").fetchone() == (0,)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("DELETE FROM flight WHERE flight = 2", ["flights stored", "airlines with all flights, miles"]),
        ("DELETE FROM airline WHERE carrier = 'AA'", ["airlines stored"]),
        ("UPDATE flight SET airline = 'American'", ["airlines with all flights, miles"]),
        ("UPDATE flight SET distance = 21 WHERE flight = 2", ["airlines with all flights, miles"]),
    ],
)
def test_a_wrong_table_is_noticed(folder: Path, change: str, found: list[str]) -> None:
    deliver(FlightStore(), DelayCounter())
    with closing(sqlite3.connect(folder / "flights.db")) as database, database:
        database.execute(change)

    assert wrong(folder) == found


@pytest.mark.parametrize(
    ("right", "changed", "found"),
    [
        ("United,2,1,7", "United,3,1,7", ["flights counted", "airlines with all delays, minutes"]),
        ("United,2,1,7", "United,2,2,7", ["late flights counted", "airlines with all delays, minutes"]),
        ("United,2,1,7", "United,2,1,6", ["airlines with all delays, minutes"]),
        ("American,0,0,0", "", ["airlines with all delays, minutes"]),
    ],
)
def test_a_wrong_count_is_noticed(folder: Path, right: str, changed: str, found: list[str]) -> None:
    deliver(FlightStore(), DelayCounter())
    file = folder / file_of(RECEIPT.envelope_id)
    counted = file.read_text()
    assert right in counted
    file.write_text(counted.replace(right, changed))

    assert wrong(folder) == found


def test_a_missing_file_is_noticed(folder: Path) -> None:
    deliver(FlightStore())

    with pytest.raises(DemoFailed, match=r"delays-.*\.csv is missing"):
        compare(ThreeFlights(), folder, RECEIPT)


def test_a_flight_of_an_unknown_airline_is_refused() -> None:
    event = Event("flights-1", "flights", Envelope(RECEIPT.envelope_id))
    worker = AirlineNames()
    worker.on_event_start(event)

    with pytest.raises(Refusal, match="no airline has the code UA"):
        worker.on_item(event, Item.of(flight({**PLACES, **LATE})))
