"""Checksums of rows: the bus writes one with a row, and an examination of the journal finds values that are others."""

import json
import zlib
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Column, Table
from sqlalchemy.engine.default import DefaultExecutionContext

_COVERED = "covered"
_COVERED_LATER = "covered_later"
_NOTHING = "\0"
_BETWEEN = "\x1f"


def checksum(*covered: str, later: Collection[str] = ()) -> Column[int]:
    """Make a column that gets the checksum of each new row by itself. Who changes a covered value writes it anew.

    Args:
        covered: the columns whose values it is made of.
        later: columns that get their values once, after the row was made. Their checksum is added then.
    """
    return Column(
        "checksum",
        BigInteger,
        default=_of_new_row,
        info={_COVERED: covered, _COVERED_LATER: later},
        comment="CRC-32 of the values that nothing else says, by which damage is found; null where it is not known.",
    )


def checksum_of(*values: object) -> int:
    """Make the checksum of values, the same before they are stored and as they are read."""
    return zlib.crc32(_BETWEEN.join([_text(value) for value in values]).encode())


def row_checksum(table: Table, values: Mapping[Any, Any]) -> int:
    """Make the checksum that a row of a table has."""
    info = table.c.checksum.info
    whole = checksum_of(*[values.get(name) for name in info[_COVERED]])
    added = [values.get(name) for name in info[_COVERED_LATER]]
    return whole if all(value is None for value in added) else whole + checksum_of(*added)


def covered_columns(table: Table) -> Collection[str] | None:
    """Give the columns that the checksum of a table's rows covers; None for a table without."""
    if "checksum" not in table.c:
        return None
    info = table.c.checksum.info
    return (*info[_COVERED], *info[_COVERED_LATER])


def _of_new_row(context: DefaultExecutionContext) -> int:
    values: dict[str, Any] = context.get_current_parameters()  # type: ignore[no-untyped-call]
    return row_checksum(context.compiled.statement.table, values)  # type: ignore[union-attr]


_FORMS: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda value: _NOTHING,
    str: str,
    int: str,
    datetime: lambda value: repr(value.timestamp()),
    UUID: lambda value: value.hex,
    bytes: bytes.hex,
    memoryview: memoryview.hex,
}
"""By the type of a value, its form in a checksum. The hot path needs it quick. Other types have that of JSON."""


def _text(value: object) -> str:
    form = _FORMS.get(type(value))
    if form is not None:
        return form(value)
    return str(value) if isinstance(value, str) else json.dumps(value)
