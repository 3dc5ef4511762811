"""The consumer: writes the delays per airline and month, and the tables that came beside them, to SQLite."""

import json
import sqlite3
from dataclasses import fields
from pathlib import Path
from typing import Any

from examples.demo_spark.figures import Month
from examples.demo_spark.tables import REFERENCES
from xbus.recipient import Batch, Consumer, Envelope, Event

FILE = Path("delays.db")
MONTHS = "month"
"""The table of the delays."""

COLUMNS = {
    MONTHS: [field.name for field in fields(Month)],
    **{table.name: list(table.columns) for table in REFERENCES},
}


class DelayStore(Consumer):
    """One envelope, one transaction. An envelope that comes again takes the place of what it brought before."""

    def on_start(self) -> None:
        self._database = sqlite3.connect(FILE)
        for table, columns in COLUMNS.items():
            self._database.execute(f"CREATE TABLE IF NOT EXISTS {table} (event_id, item, {', '.join(columns)})")

    def on_event_start(self, event: Event) -> None:
        self._database.execute(f"DELETE FROM {_table(event)} WHERE event_id = ?", (event.id,))

    def on_batch(self, event: Event, batch: Batch) -> None:
        columns = COLUMNS[_table(event)]
        rows = ((event.id, item.index, *_row(item.data, columns)) for item in batch)
        places = ", ".join("?" * (len(columns) + 2))
        self._database.executemany(f"INSERT INTO {_table(event)} VALUES ({places})", rows)

    def commit(self, envelope: Envelope) -> None:
        self._database.commit()

    def rollback(self, envelope: Envelope) -> None:
        self._database.rollback()

    def on_stop(self) -> None:
        self._database.close()


def _table(event: Event) -> str:
    return MONTHS if event.type_name == "flights" else event.type_name


def _row(item: bytes, columns: list[str]) -> list[Any]:
    value: dict[str, Any] = json.loads(item)
    return [value.get(column) for column in columns]
