"""What is sent: the flights and the tables that explain them, each row an item of JSON."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from examples.demo.source import Row, Source

Value = str | int | float | None


@dataclass(frozen=True)
class Table:
    """One of the tables.

    Attributes:
        name: its event type.
        columns: those that are sent, each with its type in Spark's SQL.
    """

    name: str
    columns: Mapping[str, str]

    @property
    def schema(self) -> str:
        """As ``--schema`` takes it."""
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())

    def items(self, rows: Iterator[Row]) -> Iterator[bytes]:
        """The items that rows of the source become."""
        for row in rows:
            yield json.dumps({name: _value(kind, row[name]) for name, kind in self.columns.items()}).encode()


AIRLINES = Table("airlines", {"carrier": "string", "name": "string"})
PLANES = Table("planes", {"tailnum": "string", "year": "int", "seats": "int"})
WEATHER = Table("weather", {"origin": "string", "time_hour": "string", "precip": "double", "visib": "double"})
FLIGHTS = Table(
    "flights",
    {
        "year": "int",
        "month": "int",
        "day": "int",
        "dep_time": "int",
        "dep_delay": "int",
        "carrier": "string",
        "flight": "int",
        "tailnum": "string",
        "origin": "string",
        "dest": "string",
        "distance": "int",
        "time_hour": "string",
    },
)
REFERENCES = (AIRLINES, PLANES, WEATHER)

_PYTHON = {"string": str, "int": int, "double": float}


def rows_of(source: Source, table: Table) -> Iterator[Row]:
    """The rows of a table as the source has them."""
    return source.flight_rows() if table is FLIGHTS else source.table_rows(table.name)


def items_of(source: Source, table: Table) -> Iterator[bytes]:
    """The items that a table is sent as."""
    return table.items(rows_of(source, table))


def _value(kind: str, text: str) -> Value:
    """A value as what it is; None for what is not known."""
    value: Value = None if text == "NA" else _PYTHON[kind](text)
    return value
