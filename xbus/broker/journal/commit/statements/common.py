"""Helpers that several statements share."""

from collections.abc import Callable
from datetime import datetime
from operator import itemgetter
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPICursor

from xbus import model
from xbus.errors import JournalError


class Prepared:
    """A statement for the hot path: written out once for each kind of database, then handed to the driver as it is.

    Args:
        statement: its parameters are plain numbers and texts, which need no conversion.
    """

    def __init__(self, statement: sa.ClauseElement) -> None:
        self._statement = statement
        self._written: dict[str, _Written] = {}

    def execute(self, connection: sa.Connection, parameters: dict[str, Any]) -> int:
        """Execute it with values for its parameters; returns how many rows it changed."""
        cursor = self._executed(connection, parameters)
        changed: int = cursor.rowcount
        cursor.close()
        return changed

    def scalar(self, connection: sa.Connection, parameters: dict[str, Any]) -> int:
        """Execute it; returns the one number that it answers."""
        cursor = self._executed(connection, parameters)
        row = cursor.fetchone()
        assert row is not None, "a statement that answers a number answers a row"
        value: int = row[0]
        cursor.close()
        return value

    def _executed(self, connection: sa.Connection, parameters: dict[str, Any]) -> DBAPICursor:
        text, in_order = self._written.get(connection.dialect.name) or self._write(connection)
        cursor = connection.connection.cursor()
        cursor.execute(text, parameters if in_order is None else in_order(parameters))
        return cursor

    def _write(self, connection: sa.Connection) -> "_Written":
        compiled = self._statement.compile(dialect=connection.dialect)
        order = getattr(compiled, "positiontup", None)
        in_order: Callable[[dict[str, Any]], tuple[object, ...]] | None = None
        if order:
            # A getter of one value would give it bare.
            in_order = itemgetter(*order) if len(order) > 1 else lambda values: (values[order[0]],)
        written = self._written[connection.dialect.name] = (str(compiled), in_order)
        return written


_Written: TypeAlias = tuple[str, Callable[[dict[str, Any]], tuple[object, ...]] | None]
"""A statement's text, and a function that gives its values in their order; None where the driver knows their names."""


def exactly_one(result: sa.CursorResult[Any], otherwise: str) -> None:
    """Let a change of one row pass.

    Raises:
        JournalError: it changed none, for the reason ``otherwise``: the row was not in the state that it must be in.
    """
    if result.rowcount != 1:
        raise JournalError(otherwise)


_INSERT_HISTORY = sa.insert(model.history)


def remember(connection: sa.Connection, at: datetime, subject: str, subject_id: str, move: str, reason: str) -> None:
    """Leave a row in the history, for the operator who asks later."""
    row = {"at": at, "subject": subject, "subject_id": subject_id, "move": move, "reason": reason}
    connection.execute(_INSERT_HISTORY, row)
