"""Rows of the hot tables, many by one statement, handed to the driver past SQLAlchemy.

Each statement is written out once for each database. SQLite executes it for each row; PostgreSQL prepares it, and gets
a column of all rows as one array, which costs the client an eighth of what values in the statement's text cost.
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias, cast
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPICursor

from xbus.model.base import Timestamp

Row: TypeAlias = tuple[object, ...]
Columns: TypeAlias = Sequence[Sequence[object]]
"""The values of rows column by column; an id may be a UUID or its 16 bytes."""

_PREPARED = "xbus_prepared"
"""Where a connection notes the statements that it has prepared."""


_MOMENT_CHARACTERS = len("2020-02-29 12:00:00.000000")
"""What SQLite keeps of a moment: without its time zone, which is UTC."""


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
        return write_together(connection, (self, rows))

    def _execute_each(self, cursor: DBAPICursor, columns: Columns) -> None:
        written = [
            values if kind.sqlite is None else kind.sqlite(values)
            for kind, values in zip(self._kinds, columns, strict=True)
        ]
        cursor.executemany(self._sqlite, list(zip(*written, strict=True)))

    def _arrays(self, columns: Columns) -> list[str]:
        return ["{" + ",".join(kind.texts(values)) + "}" for kind, values in zip(self._kinds, columns, strict=True)]

    def _be_prepared(self, connection: sa.Connection, cursor: DBAPICursor) -> None:
        prepared: set[str] = connection.info.setdefault(_PREPARED, set())
        if self._name not in prepared:
            cursor.execute(self._prepare)
            prepared.add(self._name)


def write_together(connection: sa.Connection, *writes: tuple[RowStatement, Sequence[Row]]) -> int:
    """Write the rows of several statements, in one round trip to PostgreSQL; returns how many the last one changed."""
    columns = [(statement, tuple(zip(*rows, strict=True))) for statement, rows in writes if rows]
    return write_columns(connection, *columns) if columns else 0


def write_columns(connection: sa.Connection, *writes: tuple[RowStatement, Columns]) -> int:
    """Write rows as ``write_together`` does that are given by their columns; each statement has at least one."""
    cursor = connection.connection.cursor()
    try:
        if connection.dialect.name == "sqlite":
            for statement, columns in writes:
                statement._execute_each(cursor, columns)
        else:
            for statement, _ in writes:
                statement._be_prepared(connection, cursor)
            texts = [statement._execute for statement, _ in writes]
            arrays = [array for statement, columns in writes for array in statement._arrays(columns)]
            cursor.execute("; ".join(texts), arrays)
        return cursor.rowcount
    finally:
        cursor.close()


def insert_rows(table: sa.Table, *names: str) -> RowStatement:
    """A statement that inserts rows.

    Args:
        names: the columns that its rows have values for; the others get their defaults.
    """
    into = f"INSERT INTO {table.name} ({', '.join(names)})"
    return RowStatement(
        f"xbus_insert_{table.name}",
        [table.c[name] for name in names],
        f"{into} VALUES ({', '.join('?' * len(names))})",
        f"{into} SELECT * FROM unnest({_arrays(len(names))})",
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

    A column is converted in one go: a function called for each value would take most of the time.

    Attributes:
        postgresql: the type of an element.
        texts: writes the elements of an array.
        sqlite: makes what SQLite keeps; None where the values are kept as they are.
    """

    postgresql: str
    texts: Callable[[Sequence[Any]], Sequence[str]]
    sqlite: Callable[[Sequence[Any]], Sequence[object]] | None = None


def _kind(column: "sa.Column[Any]") -> _Kind:
    return next(kind for of_type, kind in _KINDS.items() if isinstance(column.type, of_type))


def _arrays(count: int) -> str:
    return ", ".join(f"${place}" for place in range(1, count + 1))


def _hexes(values: Sequence[UUID | bytes | None]) -> list[str | None]:
    return [
        value.hex() if type(value) is bytes else None if value is None else f"{cast(UUID, value).int:032x}"
        for value in values
    ]


def _hex_texts(values: Sequence[UUID | bytes | None]) -> list[str]:
    return [value or "NULL" for value in _hexes(values)]


def _numbers(values: Sequence[int | None]) -> list[str]:
    return ["NULL" if value is None else str(value) for value in values]


def _quoted(values: Sequence[str | None]) -> list[str]:
    return [
        "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values
    ]


def _byteas(values: Sequence[bytes | None]) -> list[str]:
    return ["NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values]


def _json_texts(values: Sequence[object]) -> list[str]:
    return _quoted(_json(values))


def _json(values: Sequence[object]) -> list[str | None]:
    return [None if value is None else json.dumps(value) for value in values]


def _moment_texts(values: Sequence[datetime | None]) -> list[str]:
    # The rows of a group mostly have one moment.
    texts = {value: "NULL" if value is None else value.isoformat() for value in set(values)}
    return [texts[value] for value in values]


def _sqlite_moments(values: Sequence[datetime | None]) -> list[str | None]:
    texts = {
        value: None if value is None else value.astimezone(UTC).isoformat(" ", "microseconds")[:_MOMENT_CHARACTERS]
        for value in set(values)
    }
    return [texts[value] for value in values]


_KINDS: dict[type, _Kind] = {
    sa.Uuid: _Kind("uuid", _hex_texts, _hexes),
    Timestamp: _Kind("timestamptz", _moment_texts, _sqlite_moments),
    sa.JSON: _Kind("json", _json_texts, _json),
    sa.LargeBinary: _Kind("bytea", _byteas),
    sa.BigInteger: _Kind("bigint", _numbers),
    sa.Integer: _Kind("integer", _numbers),
    sa.String: _Kind("text", _quoted),
}
"""By the type of a column, the first that fits: a BigInteger is an Integer, a Text a String."""
