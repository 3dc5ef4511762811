"""A consumer: writes airlines and flights to tables of SQLite."""

import sqlite3
from pathlib import Path
from typing import Any

from xbus.recipient import Batch, Consumer, Envelope, Event

FILE = Path("flights.db")

TABLES = """\
CREATE TABLE IF NOT EXISTS airline (
    carrier TEXT PRIMARY KEY, name TEXT
);
CREATE TABLE IF NOT EXISTS flight (
    event_id TEXT, item INTEGER, departure TEXT, carrier TEXT, airline TEXT, flight INTEGER,
    origin TEXT, dest TEXT, distance INTEGER, dep_delay INTEGER, PRIMARY KEY (event_id, item)
) WITHOUT ROWID;
"""


class FlightStore(Consumer):
    """One envelope, one transaction.

    After a crash an envelope may come that is stored already. Event and place in the event make each flight's key, so
    it is stored once, however often it comes.
    """

    def on_start(self) -> None:
        self._database = sqlite3.connect(FILE)
        self._database.executescript(TABLES)

    def on_batch(self, event: Event, batch: Batch) -> None:
        if event.type_name == "airlines":
            self._insert("airline", 2, ((item.value["carrier"], item.value["name"]) for item in batch))
        else:
            self._insert("flight", 10, ((event.id, item.index, *_flight(item.value)) for item in batch))

    def commit(self, envelope: Envelope) -> None:
        self._database.commit()

    def rollback(self, envelope: Envelope) -> None:
        self._database.rollback()

    def on_stop(self) -> None:
        self._database.close()

    def _insert(self, table: str, columns: int, rows: Any) -> None:
        places = ", ".join("?" * columns)
        self._database.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({places})", rows)


def _flight(flight: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(
        flight[name]
        for name in ("time_hour", "carrier", "airline", "flight", "origin", "dest", "distance", "dep_delay")
    )
