"""Helpers that several statements share."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from xbus import model
from xbus.errors import JournalError


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
