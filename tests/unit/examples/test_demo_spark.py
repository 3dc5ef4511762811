"""The plain side of the demo on Spark: what it sends, counts, stores, compares and draws."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

from examples.demo.failure import DemoFailed
from examples.demo.source import Row, Source
from examples.demo_spark.check import compare, read_months, sum_up
from examples.demo_spark.delay_store import DelayStore
from examples.demo_spark.figures import Month
from examples.demo_spark.picture import draw
from examples.demo_spark.tables import AIRLINES, FLIGHTS, PLANES, REFERENCES, WEATHER, rows_of
from xbus.emitter import Receipt
from xbus.recipient import Batch, Envelope, Event, Item

RECEIPT = Receipt("01a1fbd9-2912-7a70-896b-340cc956e8db", position=1, events=4, items=11, hash=b"")
SUMMER, WINTER = "2013-07-01T10:00:00Z", "2014-01-01T02:00:00Z"


def flight(carrier: str, month: int, delay: str, tailnum: str, time_hour: str) -> Row:
    """A flight that left so many minutes after its time; NA for one that did not."""
    departure = "NA" if delay == "NA" else "517"
    known = {"year": "2013", "month": str(month), "day": "1", "dep_time": departure, "dep_delay": delay}
    return {
        **known,
        "carrier": carrier,
        "flight": "1",
        "tailnum": tailnum,
        "origin": "EWR",
        "dest": "IAH",
        "distance": "100",
        "time_hour": time_hour,
    }


class SixFlights(Source):
    """Two airlines, a plane whose age is known and one without, and rain in one hour of summer."""

    def __init__(self) -> None:
        self.flights = 6

    def table_rows(self, name: str) -> Iterator[Row]:
        yield from {
            "airlines": [{"carrier": "UA", "name": "United & Co"}, {"carrier": "AA", "name": "American"}],
            "planes": [
                {"tailnum": "N1", "year": "2003", "seats": "100"},
                {"tailnum": "N2", "year": "NA", "seats": "20"},
            ],
            "weather": [{"origin": "EWR", "time_hour": SUMMER, "precip": "0.01", "visib": "9"}],
        }[name]

    def flight_rows(self) -> Iterator[Row]:
        yield flight("UA", 7, "7", "N1", SUMMER)
        yield flight("UA", 7, "-2", "N2", SUMMER)
        yield flight("UA", 7, "NA", "N1", SUMMER)
        yield flight("UA", 12, "30", "N1", WINTER)
        yield flight("AA", 7, "60", "N9", SUMMER)
        yield flight("AA", 7, "0", "NA", WINTER)


RIGHT = [
    Month("United & Co", 7, 3, 1, 1, 7, seats=120, plane_years=10, aged=1, wet=2, wet_late=1, wet_minutes=7),
    Month("United & Co", 12, 1, 0, 1, 30, seats=100, plane_years=10, aged=1),
    Month("American", 7, 2, 0, 1, 60, wet=1, wet_late=1, wet_minutes=60),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def deliver(months: list[Month], times: int = 1) -> None:
    """Bring the consumer what the bus would, the delays as Spark writes them: without what is not known."""
    store, source = DelayStore(), SixFlights()
    store.on_start()
    for _ in range(times):
        envelope = Envelope(RECEIPT.envelope_id)
        for table in REFERENCES:
            bring(store, Event(table.name, table.name, envelope), [*table.items(rows_of(source, table))])
        bring(store, Event("flights", "flights", envelope), [json.dumps(asdict(month)).encode() for month in months])
        store.commit(envelope)
    store.on_stop()


def bring(store: DelayStore, event: Event, items: list[bytes]) -> None:
    store.on_event_start(event)
    store.on_batch(event, Batch([Item.of(item).data for item in items], 0))


def wrong(folder: Path) -> list[str]:
    """What the comparison finds wrong."""
    return [finding.what for finding in compare(SixFlights(), folder, RECEIPT) if not finding.is_right]


def test_items_are_json_with_numbers_as_numbers() -> None:
    def first(table_name: str) -> dict[str, object]:
        table = {table.name: table for table in (*REFERENCES, FLIGHTS)}[table_name]
        item: dict[str, object] = json.loads(next(table.items(rows_of(SixFlights(), table))))
        return item

    assert first("airlines") == {"carrier": "UA", "name": "United & Co"}
    assert first("planes") == {"tailnum": "N1", "year": 2003, "seats": 100}
    assert first("weather")["precip"] == 0.01
    assert first("flights")["dep_delay"] == 7
    *_, last = PLANES.items(rows_of(SixFlights(), PLANES))
    assert json.loads(last)["year"] is None


def test_a_schema_names_the_columns_that_are_sent() -> None:
    assert AIRLINES.schema == "carrier string, name string"
    assert WEATHER.schema.endswith("precip double, visib double")


def test_the_plain_computation_counts_each_flight() -> None:
    assert [*sum_up(SixFlights()).values()] == RIGHT


def test_all_is_right_when_all_has_arrived(folder: Path) -> None:
    deliver(RIGHT)

    assert wrong(folder) == []
    assert [*read_months(folder).values()] == RIGHT


def test_what_comes_again_counts_once(folder: Path) -> None:
    deliver(RIGHT, times=2)

    assert wrong(folder) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE month SET minutes = 8 WHERE minutes = 7", ["minutes late", "airline months, each figure right"]),
        ("UPDATE month SET plane_years = 1", ["airline months, each figure right"]),
        ("DELETE FROM planes WHERE tailnum = 'N1'", ["planes stored"]),
        ("INSERT INTO month SELECT * FROM month WHERE month = 12", ["that should not be"]),
        ("UPDATE month SET month = 11 WHERE month = 12", ["airline months, each figure right", "that should not be"]),
    ],
)
def test_wrong_figures_are_noticed(folder: Path, change: str, found: list[str]) -> None:
    deliver(RIGHT)
    with closing(sqlite3.connect(folder / "delays.db")) as database, database:
        database.execute(change)

    assert [what.removeprefix("airline months ") for what in wrong(folder)] == found


def test_a_missing_file_is_noticed(folder: Path) -> None:
    with pytest.raises(DemoFailed, match=r"delays\.db is missing"):
        compare(SixFlights(), folder, RECEIPT)


def test_the_picture_shows_each_airline_and_month() -> None:
    texts = [element.text for element in ElementTree.fromstring(draw(RIGHT)).iter() if element.tag.endswith("text")]

    assert "United & Co" in texts
    assert {"4", "30"} <= set(texts), "the mean departures of United, 7 minutes of 2 and 30 of 1"
    assert "Minutes that the mean departure was late, by airline and month; 5 departures" in texts


def test_a_picture_of_nothing_is_a_picture() -> None:
    ElementTree.fromstring(draw([]))
