"""Helpers that several statements share."""

from datetime import datetime
from typing import Any

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
        self._written: dict[str, tuple[str, list[str] | None]] = {}

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
        text, order = self._written.get(connection.dialect.name) or self._write(connection)
        values = parameters if order is None else tuple(parameters[name] for name in order)
        cursor = connection.connection.cursor()
        cursor.execute(text, values)
        return cursor

    def _write(self, connection: sa.Connection) -> tuple[str, list[str] | None]:
        compiled = self._statement.compile(dialect=connection.dialect)
        written = (str(compiled), getattr(compiled, "positiontup", None))
        self._written[connection.dialect.name] = written
        return written


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
