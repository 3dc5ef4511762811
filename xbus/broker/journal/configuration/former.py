"""Former entries: they stay in their tables, marked as removed, so that naming one again brings it back."""

import sqlalchemy as sa


def is_chosen(table: sa.Table) -> sa.ColumnElement[bool]:
    """Select the former rows of a table, or those in use: its parameter ``removed`` says which."""
    return table.c.removed_at.is_not(None) == sa.bindparam("removed", type_=sa.Boolean)


def without_end(table: sa.Table) -> list[sa.Column[object]]:
    """Give the columns of a table without ``removed_at``: a moment that can't be read stops nobody."""
    return [column for column in table.columns if column.name != "removed_at"]
