"""A row in every table of the journal, made of the columns alone: whatever column is added later is filled, too."""

import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.table_rows import set_last_id
from xbus.model.base import Timestamp

AT = datetime(2026, 2, 28, 23, 59, 59, 123456, tzinfo=UTC)

ONE = {"audit_head", "configuration", "contents_end", "head"}
"""Tables that have one row from the beginning, and no other."""


def fill_all_tables(connection: sa.Connection) -> None:
    """Add a row with a value in each column, and one with nulls where that is allowed, to each table."""
    rows: dict[str, Mapping[str, Any]] = {}
    for table in model.metadata.sorted_tables:
        full = {column.name: _value(column, rows, number=1) for column in table.columns}
        if table is model.session:
            full["role_id"] = None  # it is an emitter's or a role's
        rows[table.name] = full
        if table.name in ONE:
            connection.execute(sa.update(table).values({name: value for name, value in full.items() if name != "id"}))
            continue
        connection.execute(sa.insert(table).values(full))
        own_key = [column for column in table.primary_key if not column.foreign_keys]
        if own_key:
            sparse = {
                column.name: None if column.nullable else _value(column, rows, number=2) for column in table.columns
            }
            if table in (model.session, model.api_token):
                sparse["role_id"] = rows["role"]["id"]
            connection.execute(sa.insert(table).values(sparse))
        # PostgreSQL counts only the ids that it gives itself.
        set_last_id(connection, table, None)


def _value(column: "sa.Column[Any]", rows: Mapping[str, Mapping[str, Any]], number: int) -> Any:
    if column.foreign_keys and not (number == 2 and column.unique):
        (key,) = column.foreign_keys
        return rows[key.column.table.name][key.column.name]
    if choices := _choices(column):
        return choices[0 if number == 1 else -1]
    match column.type:
        case sa.Uuid():
            return uuid.UUID(int=number)
        case Timestamp():
            return AT
        case sa.Boolean():
            return True
        case sa.Float():
            return float("inf") if number == 1 else 0.1
        case sa.Integer():
            return number
        case sa.JSON():
            return {"of": [None, "ü", 1.5]}
        case sa.LargeBinary():
            return bytes([number, 0, 255]) * 5
        case sa.String():
            return f"Ünïcode\t\\N {number}"
    raise TypeError(f"no value for {column!r}")


def _choices(column: "sa.Column[Any]") -> list[str]:
    """The values that a check of the column allows."""
    for constraint in column.table.constraints | column.constraints:
        if isinstance(constraint, sa.CheckConstraint):
            found = re.fullmatch(rf"{column.name} IN \((.*)\)", str(constraint.sqltext))
            if found:
                return re.findall(r"'(\w+)'", found[1])
    return []
