"""PostgreSQL's binary COPY format, written and read.

The format is that of PostgreSQL's documentation, "COPY", "Binary Format": a header, for each row the number of fields
and each field with its length before it (-1 for null), and a closing -1. Side files (``side_files.py``) hold the same.
"""

import io
import struct
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, TypeAlias

from xbus.errors import JournalError

HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
END = struct.pack("!h", -1)

COPY_CHUNK_BYTES = 1024 * 1024
"""So much goes to the driver at a time."""

Field: TypeAlias = bytes | None

INTEGER = struct.Struct("!i")
BIG_INTEGER = struct.Struct("!q")
"""Fields of these types."""

_COUNT = struct.Struct("!h")
_LENGTH = struct.Struct("!i")
_NULL = _LENGTH.pack(-1)


def pack_field(field: Field) -> tuple[bytes, ...]:
    """Pack a field in pieces, to be joined with those of others: so a large one is copied only once."""
    return (_NULL,) if field is None else (_LENGTH.pack(len(field)), field)


def pack_row(fields: Sequence[Field]) -> list[bytes]:
    """Pack a row in pieces."""
    pieces = [_COUNT.pack(len(fields))]
    for field in fields:
        pieces += pack_field(field)
    return pieces


def copy_in(cursor: Any, table: str, columns: Sequence[str], rows: Iterable[bytes]) -> None:
    """Write rows to a table.

    Args:
        cursor: psycopg2's.
        rows: in pieces, as ``pack_row`` makes them.
    """
    file = io.BytesIO(b"".join((HEADER, *rows, END)))
    cursor.copy_expert(f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT binary)", file, COPY_CHUNK_BYTES)


def unpack_rows(messages: Iterable[bytes]) -> Iterator[list[Field]]:
    """Unpack the rows of a whole COPY, each into its fields.

    Args:
        messages: as PostgreSQL sends them ("Message Flow", "COPY Operations"): each has whole rows only.

    Raises:
        JournalError: the COPY is broken off, or invalid.
    """
    start = len(HEADER)
    for message in messages:
        if start and message[:start] != HEADER:
            raise broken_off()
        try:
            if (yield from _rows(message, start)):
                return
        except struct.error:
            raise broken_off() from None
        start = 0
    raise broken_off()


def _rows(message: bytes, place: int) -> Generator[list[Field], None, bool]:
    """Unpack the rows of a message from a place on; return whether they were the last ones."""
    while place < len(message):
        count = _COUNT.unpack_from(message, place)[0]
        place += 2
        if count == -1:
            return True
        fields: list[Field] = []
        for _ in range(count):
            length = _LENGTH.unpack_from(message, place)[0]
            place += 4
            if length < 0:
                fields.append(None)
                continue
            field = message[place : place + length]
            if len(field) != length:
                raise broken_off()
            fields.append(field)
            place += length
        yield fields
    return False


def read_row(file: BinaryIO) -> list[Field] | None:
    """Read the next row of a file, positioned behind its header or a row; None at the end.

    Raises:
        JournalError: the file is broken off.
    """
    (count,) = _COUNT.unpack(_read(file, 2))
    if count == -1:
        return None
    fields: list[Field] = []
    for _ in range(count):
        (length,) = _LENGTH.unpack(_read(file, 4))
        fields.append(None if length < 0 else _read(file, length))
    return fields


def _read(file: BinaryIO, size: int) -> bytes:
    found = file.read(size)
    if len(found) != size:
        raise broken_off()
    return found


def broken_off() -> JournalError:
    """Make the error of data that ends too early."""
    return JournalError("rows in PostgreSQL's binary format are broken off", "read them again")
