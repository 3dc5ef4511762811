"""Values of rows, and rows of values: fields of a class have the names of columns."""

from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

from xbus.broker.journal.database.rows import NamedRow

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


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
