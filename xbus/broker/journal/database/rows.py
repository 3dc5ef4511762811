"""Rows that are read by the names of their columns, and values of them: their fields have the names of columns.

SQLAlchemy knows no types of such rows.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
K = TypeVar("K")
V = TypeVar("V")

NamedRow: TypeAlias = sa.Row[*tuple[object, ...]]
"""A row whose columns are read by name. The columns of a short SELECT have types instead, and are unpacked."""

NamedRows: TypeAlias = sa.Select[*tuple[object, ...]]
"""A SELECT of such rows."""


def value_of(kind: type[T], row: NamedRow, **own: object) -> T:
    """Make a value of the columns that have the names of its fields.

    Args:
        own: fields that no column has as they are; they come before columns.
    """
    found = row._mapping
    return kind(**{field.name: found[field.name] for field in fields(kind) if field.name in found} | own)


def columns_of(value: "DataclassInstance", *without: str) -> dict[str, object]:
    """Give the fields of a value that are kept, which have the names of its table's columns.

    Args:
        without: fields that have no column of their name.
    """
    kept = (field.name for field in fields(value) if field.compare)
    return {name: getattr(value, name) for name in kept if name not in without}


def columns_for(kind: type["DataclassInstance"], table: sa.Table) -> Iterator[sa.Column[object]]:
    """Give the columns of a table that :func:`value_of` needs, in the order of the fields."""
    return (table.c[field.name] for field in fields(kind) if field.name in table.c)


def grouped(rows: Iterable[sa.Row[K, V]]) -> defaultdict[K, list[V]]:
    """Collect the second column of rows by the first one, in the order of the rows."""
    found: defaultdict[K, list[V]] = defaultdict(list)
    for key, value in rows:
        found[key].append(value)
    return found


def insert_new(connection: sa.Connection, table: sa.Table) -> sa.Insert:
    """Build an INSERT that passes over a row which is there already: an index decides, whoever else writes."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return insert(table).on_conflict_do_nothing()


def find_id(connection: sa.Connection, column: sa.Column[str], name: str) -> int | None:
    """Find the id of the row with a name, also of a removed one. None if no row has the name."""
    found: int | None = connection.execute(sa.select(column.table.c.id).where(column == name)).scalar_one_or_none()
    return found
