"""Rows of the hot tables, many by one statement, handed to the driver past SQLAlchemy.

Each statement is written out once for each database. SQLite executes it for each row; PostgreSQL prepares it, and gets
a column of all rows as one array, which costs the client an eighth of what values in the statement's text cost.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPICursor

from xbus.model.base import Timestamp

Row: TypeAlias = tuple[object, ...]

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

    def _execute_each(self, cursor: DBAPICursor, rows: Sequence[Row]) -> None:
        written = [values if kind.sqlite is None else kind.sqlite(values) for kind, values in self._columns(rows)]
        cursor.executemany(self._sqlite, list(zip(*written, strict=True)))

    def _arrays(self, rows: Sequence[Row]) -> list[str]:
        return [_array(kind.text, values) for kind, values in self._columns(rows)]

    def _columns(self, rows: Sequence[Row]) -> Iterator[tuple["_Kind", tuple[object, ...]]]:
        return zip(self._kinds, zip(*rows, strict=True), strict=True)

    def _be_prepared(self, connection: sa.Connection, cursor: DBAPICursor) -> None:
        prepared: set[str] = connection.info.setdefault(_PREPARED, set())
        if self._name not in prepared:
            cursor.execute(self._prepare)
            prepared.add(self._name)


def write_together(connection: sa.Connection, *writes: tuple[RowStatement, Sequence[Row]]) -> int:
    """Write the rows of several statements, in one round trip to PostgreSQL; returns how many the last one changed."""
    writes = tuple([(statement, rows) for statement, rows in writes if rows])
    if not writes:
        return 0
    with closing(connection.connection.cursor()) as cursor:
        if connection.dialect.name == "sqlite":
            for statement, rows in writes:
                statement._execute_each(cursor, rows)
        else:
            for statement, _ in writes:
                statement._be_prepared(connection, cursor)
            texts = [statement._execute for statement, _ in writes]
            cursor.execute("; ".join(texts), [array for statement, rows in writes for array in statement._arrays(rows)])
        return cursor.rowcount


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
    """Hands values of a column over, None aside, as SQLAlchemy's types would.

    Attributes:
        postgresql: the type of an element.
        text: writes an element of an array.
        sqlite: makes what SQLite keeps of a whole column; None where the values are kept as they are.
    """

    postgresql: str
    text: Callable[[Any], str]
    sqlite: Callable[[Sequence[object]], Sequence[object]] | None = None


def _kind(column: "sa.Column[Any]") -> _Kind:
    return next(kind for of_type, kind in _KINDS.items() if isinstance(column.type, of_type))


def _arrays(count: int) -> str:
    return ", ".join(f"${place}" for place in range(1, count + 1))


def _array(text: Callable[[Any], str], values: Sequence[object]) -> str:
    return "{" + ",".join(["NULL" if value is None else text(value) for value in values]) + "}"


def _hex(value: UUID) -> str:
    return f"{value.int:032x}"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _bytea(value: bytes) -> str:
    return f'"\\\\x{value.hex()}"'


def _sqlite_moment(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(" ", "microseconds")[:_MOMENT_CHARACTERS]


def _each(write: Callable[[Any], object]) -> Callable[[Sequence[object]], Sequence[object]]:
    return lambda values: [None if value is None else write(value) for value in values]


_KINDS: dict[type, _Kind] = {
    sa.Uuid: _Kind("uuid", _hex, _each(_hex)),
    Timestamp: _Kind("timestamptz", datetime.isoformat, _each(_sqlite_moment)),
    sa.JSON: _Kind("json", lambda value: _quoted(json.dumps(value)), _each(json.dumps)),
    sa.LargeBinary: _Kind("bytea", _bytea),
    sa.BigInteger: _Kind("bigint", str),
    sa.Integer: _Kind("integer", str),
    sa.String: _Kind("text", _quoted),
}
"""By the type of a column, the first that fits: a BigInteger is an Integer, a Text a String."""
