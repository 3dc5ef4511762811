"""Whole tables: their rows in one form, whichever database they are in, as a stream."""

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.binary_copy import BIG_INTEGER, INTEGER, Field, copy_in, pack_row
from xbus.model.base import Timestamp

CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes that are written at a time. More takes more memory, and little less time."""

LARGE_ROWS = 16
SMALL_ROWS = 1000
"""Rows that are fetched at a time: of tables with data, which may be a megabyte in each row, and of others."""

TableRow: TypeAlias = tuple[Mapping[str, object], bytes]
"""The values of a row by column, and the row as PostgreSQL's COPY takes it."""

Tell: TypeAlias = Callable[[int], None]
"""Gets the number of rows that went by since it was called last."""

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FLOAT = struct.Struct("!d")

Pack: TypeAlias = Callable[[Any], bytes]
"""Packs a value of a column that is not null."""

_PACKERS: Sequence[tuple[type[sa.types.TypeEngine[Any]], Pack]] = (
    (sa.Uuid, lambda value: value.bytes),
    (Timestamp, lambda value: BIG_INTEGER.pack((value - _EPOCH) // _MICROSECOND)),
    (sa.BigInteger, BIG_INTEGER.pack),
    (sa.Integer, INTEGER.pack),
    (sa.Boolean, lambda value: b"\1" if value else b"\0"),
    (sa.Float, _FLOAT.pack),
    (sa.JSON, lambda value: json.dumps(value).encode()),
    (sa.String, str.encode),
    (sa.LargeBinary, bytes),
)
"""The forms of PostgreSQL's binary COPY; BigInteger before Integer, which it is one of."""


@dataclass(slots=True)
class TableContents:
    """The content of a table: equal if the same rows are in it, in whatever order.

    Args:
        rows: their number.
        digest: the sum of the rows' hashes.
    """

    rows: int = 0
    digest: int = 0

    def counting(self, rows: Iterable[TableRow]) -> Iterator[TableRow]:
        """Hand rows on, and count each in."""
        for row in rows:
            self.rows += 1
            hashed = hashlib.blake2b(row[1], digest_size=8).digest()
            self.digest = (self.digest + int.from_bytes(hashed, "big")) % 2**64
            yield row


def read_rows(connection: sa.Connection, table: sa.Table) -> Iterator[TableRow]:
    """Stream the rows of a table, each by column and packed."""
    packers = [(column.name, _packer(column)) for column in table.columns]
    is_large = any(isinstance(column.type, sa.LargeBinary) for column in table.columns)
    streaming = {"stream_results": True, "yield_per": LARGE_ROWS if is_large else SMALL_ROWS}
    for row in connection.execute(sa.select(table), execution_options=streaming).mappings():
        values = {name: row[name] for name, _ in packers}
        fields: list[Field] = [None if values[name] is None else pack(values[name]) for name, pack in packers]
        yield values, b"".join(pack_row(fields))


def counted(rows: Iterable[TableRow], tell: Tell) -> Iterator[TableRow]:
    """Hand rows on, and tell now and then how many went by."""
    number = 0
    for number, row in enumerate(rows, 1):
        yield row
        if number % SMALL_ROWS == 0:
            tell(SMALL_ROWS)
    tell(number % SMALL_ROWS)


def write_rows(connection: sa.Connection, table: sa.Table, rows: Iterable[TableRow]) -> None:
    """Write rows as :func:`read_rows` gives them, in chunks."""
    write = _copy if connection.dialect.name == "postgresql" else _insert
    chunk: list[TableRow] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(row[1])
        if size >= CHUNK_BYTES:
            write(connection, table, chunk)
            chunk, size = [], 0
    if chunk:
        write(connection, table, chunk)


def read_contents(connection: sa.Connection, table: sa.Table, tell: Tell = lambda rows: None) -> TableContents:
    """Read a whole table, to compare it."""
    contents = TableContents()
    for _ in contents.counting(counted(read_rows(connection, table), tell)):
        pass
    return contents


def count_rows(connection: sa.Connection) -> int:
    """Estimate the rows of all tables, for a progress bar."""
    with connection.begin():
        if connection.dialect.name == "postgresql":
            names: Any = sa.bindparam("names", [table.name for table in model.metadata.sorted_tables], expanding=True)
            counted = sa.text("SELECT sum(n_live_tup) FROM pg_stat_user_tables WHERE relname IN :names")
            return int(connection.execute(counted.bindparams(names)).scalar_one() or 0)
        # The number of the last row, which is read at once, in place of a count, which reads all.
        tables = (table for table in model.metadata.sorted_tables)
        return sum(
            int(connection.exec_driver_sql(f'SELECT coalesce(max(rowid), 0) FROM "{table.name}"').scalar_one())
            for table in tables
        )


def _copy(connection: sa.Connection, table: sa.Table, chunk: Sequence[TableRow]) -> None:
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor:
        copy_in(cursor, table.name, [column.name for column in table.columns], [packed for _, packed in chunk])


def _insert(connection: sa.Connection, table: sa.Table, chunk: Sequence[TableRow]) -> None:
    connection.execute(sa.insert(table), [dict(values) for values, _ in chunk])


def _packer(column: "sa.Column[Any]") -> Pack:
    for kind, pack in _PACKERS:
        if isinstance(column.type, kind):
            return pack
    raise TypeError(f"no form for {column.table.name}.{column.name} of type {column.type!r}")


def last_id(connection: sa.Connection, table: sa.Table) -> int | None:
    """Read the last id that a table has given out, also if its row is gone; None without one."""
    if connection.dialect.name == "postgresql":
        sequence = _sequence_of(connection, table)
        if sequence is None:
            return None
        last, is_called = connection.exec_driver_sql(f"SELECT last_value, is_called FROM {sequence}").one()
        return int(last) if is_called else 0
    statement = sa.text("SELECT seq FROM sqlite_sequence WHERE name = :name")
    found: int | None = connection.execute(statement, {"name": table.name}).scalar_one_or_none()
    return found


def set_last_id(connection: sa.Connection, table: sa.Table, given: int | None) -> None:
    """Have a table go on counting behind an id that was given out, and behind all that it has."""
    column = table.autoincrement_column
    if column is None:
        return
    highest = connection.execute(sa.select(sa.func.max(column))).scalar_one()
    last = max(given or 0, highest or 0)
    if connection.dialect.name == "postgresql":
        sequence = _sequence_of(connection, table)
        if sequence is not None and last:
            connection.execute(sa.text("SELECT setval(:sequence, :last)"), {"sequence": sequence, "last": last})
    elif last_id(connection, table) is not None:
        statement = sa.text("UPDATE sqlite_sequence SET seq = :last WHERE name = :name")
        connection.execute(statement, {"last": last, "name": table.name})


def _sequence_of(connection: sa.Connection, table: sa.Table) -> str | None:
    column = table.autoincrement_column
    if column is None:
        return None
    statement = sa.text("SELECT pg_get_serial_sequence(:table, :column)")
    found: str | None = connection.execute(statement, {"table": table.name, "column": column.name}).scalar_one()
    return found
