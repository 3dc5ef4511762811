"""Reads each value of each table as it is stored, and compares it with the type of its column.

SQLite keeps whatever is in a cell, so a flipped bit may make a number a text, or a text no UTF-8. Such a value stops a
program that reads it; here it becomes a fault with its row.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.promises import NO_CHECKSUMS, lacks_checksums
from xbus.broker.journal.fsck.faults import Fault, FaultCode, Tell
from xbus.model.base import Timestamp
from xbus.states import PresenceState, TrackingState

# -- database ----------------------------------------------------------------------------------------------------------
# Asks the database for damage that it can find by itself, and follows all references between rows.

MOST_OF_A_TABLE = 100
"""Faults of a table that SQLite reports, and references that are named for each foreign key."""


def check_pages(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Have SQLite compare its pages, and its indexes with their tables.

    PostgreSQL compares the checksum of a page whenever it reads it, so the other checks find what is wrong there.
    """
    if connection.dialect.name == "sqlite":
        yield from _check_pages_of_sqlite(connection, tell)


def check_checksums(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """See whether PostgreSQL keeps checksums of its pages."""
    tell(0)
    with connection.begin():
        if lacks_checksums(connection):
            yield Fault(FaultCode.NO_CHECKSUMS, "", "", ": ".join(NO_CHECKSUMS))


def _check_pages_of_sqlite(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    with connection.begin():
        # Also those of SQLite itself and of the migrations.
        tables = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars().all()
    for table in tables:
        with connection.begin():
            rows = connection.exec_driver_sql(f'PRAGMA integrity_check("{table}")').scalars().all()
        for told in rows[:MOST_OF_A_TABLE]:
            if told != "ok":
                yield Fault(FaultCode.DATABASE_DAMAGED, table, "", f"SQLite says: {told}")
        tell(0)


def check_references(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Find rows whose foreign keys lead nowhere: constraints hold for statements, and not for damage."""
    for table in model.metadata.sorted_tables:
        for key in table.foreign_keys:
            with connection.begin():
                yield from _check_reference(connection, table, key)
        tell(0)


def _check_reference(connection: sa.Connection, table: sa.Table, key: sa.ForeignKey) -> Iterator[Fault]:
    child, parent = key.parent, key.column.table.alias("parent")
    own = [sa.cast(column, sa.Text) for column in table.primary_key.columns]
    lost = (
        sa.select(sa.cast(child, sa.Text), *own)
        .select_from(table.outerjoin(parent, parent.c[key.column.name] == child))
        .where(child.is_not(None), parent.c[key.column.name].is_(None))
        .limit(MOST_OF_A_TABLE)
    )
    for found in connection.execute(lost):
        value, *row = found
        cause = f"{child.name} is {value}, and {key.column.table.name} has no such row"
        yield Fault(FaultCode.REFERENCE_BROKEN, table.name, ", ".join(map(str, row)), cause)


PAGE_ROWS = 1_000

Reader: TypeAlias = Callable[[Any], object]
"""Reads a value as it is stored, and raises ValueError if it is none of its column."""

CHECKED_WITH_THEIR_HASH = {(model.segment, "data"), (model.bulk_segment, "data")}
"""Large values that other checks read anyway."""


_WORDS: Mapping[sa.Column[Any], Iterable[str]] = {
    model.failure.c.tracking: TrackingState,
    model.presence.c.state: PresenceState,
}
"""The words of columns that have no constraint."""


def check_values(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Check the values of all tables."""
    for table in model.metadata.sorted_tables:
        with connection.begin():
            yield from _check_table(connection, table, tell)


def _check_table(connection: sa.Connection, table: sa.Table, tell: Tell) -> Iterator[Fault]:
    columns = [column for column in table.columns if (table, column.name) not in CHECKED_WITH_THEIR_HASH]
    readers = [_reader(column, connection.dialect.name) for column in columns]
    raw = sa.select(*(_raw(column, connection.dialect.name).label(f"c{n}") for n, column in enumerate(columns)))
    keys = [place for place, column in enumerate(columns) if column.primary_key]
    rows = connection.execute(raw.select_from(table), execution_options={"yield_per": PAGE_ROWS})
    for page in rows.partitions():
        for row in page:
            for column, read, value in zip(columns, readers, row, strict=True):
                problem = _problem(column, read, value)
                if problem is not None:
                    key = ", ".join(_shown(row[place]) for place in keys)
                    yield Fault(FaultCode.VALUE_UNREADABLE, table.name, key, f"{column.name} {problem}")
        tell(len(page))


def _raw(column: sa.Column[Any], dialect: str) -> sa.ColumnElement[object]:
    """Read a text as bytes: the driver would end at the first that is no UTF-8."""
    if not _is_text(column, dialect):
        return sa.type_coerce(column, sa.types.NullType())
    if dialect == "sqlite":
        return sa.cast(column, sa.LargeBinary)
    return sa.func.convert_to(sa.cast(column, sa.Text), "UTF8", type_=sa.LargeBinary)


def _is_text(column: sa.Column[Any], dialect: str) -> bool:
    # SQLite keeps ids and moments as texts, too.
    as_text = (sa.String, sa.JSON) if dialect == "postgresql" else (sa.String, sa.JSON, sa.Uuid, Timestamp)
    return isinstance(column.type, as_text)


def _reader(column: sa.Column[Any], dialect: str) -> Reader:
    """Give what reads a value of a column, and raises ValueError where it is none."""
    if isinstance(column.type, sa.LargeBinary):
        return _bytes_of(column.type.length)
    if not _is_text(column, dialect):
        number = isinstance(column.type, sa.Integer | sa.Boolean)
        return _a_number if number else _anything
    if isinstance(column.type, sa.JSON):
        return lambda value: json.loads(bytes(value).decode())
    if isinstance(column.type, sa.Uuid):
        return lambda value: UUID(bytes(value).decode())
    if isinstance(column.type, Timestamp):
        return lambda value: datetime.fromisoformat(bytes(value).decode())
    states = _states_of(column)
    return lambda value: _text(bytes(value), states)


def _states_of(column: sa.Column[Any]) -> frozenset[str] | None:
    """Give the words that a column may have, by its constraint; None for any."""
    if column in _WORDS:
        return frozenset(_WORDS[column])
    for constraint in column.constraints:
        if isinstance(constraint, sa.CheckConstraint) and " IN " in str(constraint.sqltext):
            return frozenset(str(constraint.sqltext).split("'")[1::2])
    return None


def _problem(column: sa.Column[Any], read: Callable[[Any], object], value: Any) -> str | None:
    if value is None:
        return None if column.nullable else "is missing"
    try:
        read(value)
    except (ValueError, TypeError, RecursionError) as error:
        return f"can't be read: {error}"
    return None


def _bytes_of(length: int | None) -> Reader:
    def read(value: Any) -> None:
        if not isinstance(value, bytes | memoryview):
            raise ValueError(f"it is no bytes but {type(value).__name__}")
        if length is not None and len(value) > length:
            raise ValueError(f"it has {len(value)} bytes, and {length} at the most")

    return read


def _a_number(value: Any) -> None:
    if not isinstance(value, int):
        raise ValueError(f"it is no number but {type(value).__name__}")


def _anything(value: Any) -> None:
    """Accept what the database made sure of."""


def _text(value: bytes, allowed: frozenset[str] | None) -> None:
    text = value.decode()
    if allowed is not None and text not in allowed:
        raise ValueError(f"{text!r} is not one of {', '.join(sorted(allowed))}")


def _shown(value: Any) -> str:
    if isinstance(value, bytes | memoryview):
        try:
            text = bytes(value).decode()
        except UnicodeDecodeError:
            return bytes(value).hex()
        return str(UUID(text)) if len(text) == 32 and _is_hex(text) else text
    return str(value)


def _is_hex(text: Sequence[str]) -> bool:
    return all(letter in "0123456789abcdef" for letter in text)
