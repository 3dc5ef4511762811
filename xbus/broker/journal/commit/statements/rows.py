"""Statements of the hot tables, handed to the driver past SQLAlchemy.

Each statement is written out once for each database. SQLite executes those for rows once for each of them. PostgreSQL
prepares them, and gets a column of all rows as one array, which costs the client an eighth of what values in the
statement's text cost.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias, cast
from uuid import UUID

import psycopg2
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor, Dialect

from xbus.broker.journal.database.engine import driver_of
from xbus.broker.journal.database.postgres_session import PostgresSession
from xbus.model.base import Timestamp

Driver: TypeAlias = DBAPIConnection
"""A connection of the driver, in a transaction."""

Row: TypeAlias = tuple[object, ...]

INTEGRITY_ERRORS = (sqlite3.IntegrityError, psycopg2.IntegrityError)
"""The drivers' errors of rows that break a rule of the tables."""

_MOMENT_CHARACTERS = len("2020-02-29 12:00:00.000000")
"""The form in which SQLite keeps a moment: without its time zone, which is UTC."""


def moment_text(at: datetime) -> str:
    """Write a moment as SQLite keeps it."""
    return at.astimezone(UTC).isoformat(" ", "microseconds")[:_MOMENT_CHARACTERS]


class Prepared:
    """A statement that is written out once for each kind of database.

    Args:
        statement: its parameters are plain numbers and texts, which need no conversion.
    """

    def __init__(self, statement: sa.ClauseElement) -> None:
        self._statement = statement
        self._written: dict[type, str] = {}

    def execute(self, driver: Driver, parameters: dict[str, Any]) -> DBAPICursor:
        """Execute it with values for its parameters."""
        cursor = driver.cursor()
        cursor.execute(self._written.get(type(driver)) or self._write(driver), parameters)
        return cursor

    def _write(self, driver: Driver) -> str:
        # Both know parameters by their names.
        is_sqlite = isinstance(driver, sqlite3.Connection)
        dialect: Dialect = sqlite.dialect(paramstyle="named") if is_sqlite else postgresql.psycopg2.dialect()  # type: ignore[no-untyped-call]
        written = self._written[type(driver)] = str(self._statement.compile(dialect=dialect))
        return written


class RowStatement:
    """A statement that writes any number of rows.

    Args:
        name: of the prepared statement.
        columns: of the values of a row, in order.
        sqlite: its text, with a question mark for each value.
        postgresql: its text, with ``$1`` for the array of the first column's values, and so on.
    """

    def __init__(self, name: str, columns: Sequence["sa.Column[Any]"], sqlite: str, postgresql: str) -> None:
        self._kinds = [_kind(column) for column in columns]
        self._sqlite = sqlite
        self._name = name
        types = ", ".join(f"{kind.postgresql}[]" for kind in self._kinds)
        self._prepare = f"PREPARE {name} ({types}) AS {postgresql}"
        self._execute = f"EXECUTE {name} ({', '.join(['%s'] * len(columns))})"

    def execute(self, connection: sa.Connection, rows: Sequence[Row]) -> int:
        """Write rows; returns how many were changed."""
        return write_rows(driver_of(connection), (self, self.plain(rows))) if rows else 0

    def plain(self, rows: Sequence[Row]) -> list[Row]:
        """Give rows as ``write_rows`` takes them: ids, moments and JSON as SQLite keeps them.

        A column is converted in one go: a function called for each value would take most of the time.
        """
        columns = zip(*rows, strict=True)
        plain = [
            values if kind.plain is None else kind.plain(values)
            for kind, values in zip(self._kinds, columns, strict=False)
        ]
        return [*zip(*plain, strict=True)]


def pass_on(_: Exception) -> None:
    """Let the error of a row go as it is."""


def write_rows(
    driver: Driver,
    *writes: tuple[RowStatement, Sequence[Row]],
    refuse: Callable[[Exception], None] = pass_on,
    is_last: bool = False,
) -> int:
    """Write the rows of several statements, in one round trip to PostgreSQL.

    Args:
        writes: each with one row at the least, as ``RowStatement.plain`` gives them.
        refuse: gets the error of a row that breaks a rule of the tables; it may raise a better one.
        is_last: whether the transaction does nothing more: then rows may go to PostgreSQL with its COMMIT, and an error
            comes there.

    Returns:
        How many the last one changed; 0 if that is not known yet.
    """
    if is_last and isinstance(driver, PostgresSession) and driver.is_own:
        driver.end_with(*_in_arrays(driver, writes), refuse)
        return 0
    cursor = driver.cursor()
    try:
        if isinstance(driver, sqlite3.Connection):
            for statement, rows in writes:
                cursor.executemany(statement._sqlite, rows)
        else:
            cursor.execute(*_in_arrays(cast(PostgresSession, driver), writes))
    except INTEGRITY_ERRORS as error:
        refuse(error)
        raise
    return cursor.rowcount


def _in_arrays(
    session: PostgresSession, writes: Sequence[tuple[RowStatement, Sequence[Row]]]
) -> tuple[str, Sequence[str]]:
    """Give the statements of rows, which the session has prepared then, and their values."""
    arrays: list[str] = []
    for statement, rows in writes:
        if statement._name not in session.prepared:
            session.cursor().execute(statement._prepare)
            session.prepared.add(statement._name)
        for kind, values in zip(statement._kinds, zip(*rows, strict=True), strict=True):
            arrays.append("{" + ",".join(kind.texts(values)) + "}")
    return "; ".join([statement._execute for statement, _ in writes]), arrays


def insert_rows(
    statement: str, table: sa.Table, names: Sequence[str], constants: Mapping[str, str] | None = None
) -> RowStatement:
    """A statement that inserts rows.

    Args:
        statement: its name.
        names: the columns that its rows have values for.
        constants: values, as SQL, of columns that are the same in all rows. All other columns get their defaults.
    """
    same = constants or {}
    into = f"INSERT INTO {table.name} ({', '.join((*names, *same))})"
    return RowStatement(
        f"xbus_{statement}",
        [table.c[name] for name in names],
        f"{into} VALUES ({', '.join((*'?' * len(names), *same.values()))})",
        f"{into} SELECT {', '.join(('*', *same.values()))} FROM unnest({_arrays(len(names))})",
    )


def update_rows(
    statement: str, table: sa.Table, names: Sequence[str], key: str, still: str | None = None
) -> RowStatement:
    """A statement that updates rows.

    Args:
        statement: its name.
        names: the columns that get new values, which come first in its rows.
        key: the column that says which row; its values come last.
        still: a condition on other columns: a row that does not meet it is not changed, and not counted.
    """
    condition = "" if still is None else f" AND {table.name}.{still}"
    old = ", ".join(f"{name} = ?" for name in names)
    new = ", ".join(f"{name} = new.{name}" for name in names)
    rows = f"unnest({_arrays(len(names) + 1)}) AS new ({', '.join((*names, key))})"
    return RowStatement(
        f"xbus_{statement}",
        [table.c[name] for name in (*names, key)],
        f"UPDATE {table.name} SET {old} WHERE {key} = ?{condition}",
        f"UPDATE {table.name} SET {new} FROM {rows} WHERE {table.name}.{key} = new.{key}{condition}",
    )


class _Kind(NamedTuple):
    """Hands the values of a column over, None among them, as SQLAlchemy's types would.

    Attributes:
        postgresql: the type of an element.
        texts: writes plain values as the elements of an array.
        plain: makes plain values, which SQLite keeps as they are; None where they are plain.
    """

    postgresql: str
    texts: Callable[[Sequence[Any]], Sequence[str]]
    plain: Callable[[Sequence[Any]], Sequence[object]] | None = None


def _kind(column: "sa.Column[Any]") -> _Kind:
    return next(kind for of_type, kind in _KINDS.items() if isinstance(column.type, of_type))


def _arrays(count: int) -> str:
    return ", ".join(f"${place}" for place in range(1, count + 1))


def _hexes(values: Sequence[UUID | None]) -> list[str | None]:
    return [None if value is None else f"{value.int:032x}" for value in values]


def _plain_texts(values: Sequence[object]) -> list[str]:
    return ["NULL" if value is None else str(value) for value in values]


def _quoted(values: Sequence[str | None]) -> list[str]:
    return [
        "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values
    ]


def _byteas(values: Sequence[bytes | None]) -> list[str]:
    return ["NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values]


def _json(values: Sequence[object]) -> list[str | None]:
    return [None if value is None else json.dumps(value) for value in values]


def _moments(values: Sequence[datetime | None]) -> list[str | None]:
    # The rows of a group mostly have one moment.
    texts = {value: None if value is None else moment_text(value) for value in set(values)}
    return [texts[value] for value in values]


def _moment_texts(values: Sequence[str | None]) -> list[str]:
    return ["NULL" if value is None else f'"{value}+00"' for value in values]


_KINDS: dict[type, _Kind] = {
    sa.Uuid: _Kind("uuid", _plain_texts, _hexes),
    Timestamp: _Kind("timestamptz", _moment_texts, _moments),
    sa.JSON: _Kind("json", _quoted, _json),
    sa.LargeBinary: _Kind("bytea", _byteas),
    sa.BigInteger: _Kind("bigint", _plain_texts),
    sa.Integer: _Kind("integer", _plain_texts),
    sa.String: _Kind("text", _quoted),
}
"""By the type of a column, the first that fits: a BigInteger is an Integer, a Text a String."""
