"""Moves on failures, as command and monitor make them: by whom a failure is looked after, and on a whole group."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TypeAlias

from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.operations.failures import Assign, FailureMove, move_group_page, show_group
from xbus.broker.journal.people import known_person
from xbus.errors import Refused

Writing: TypeAlias = Callable[[], AbstractContextManager[Connection]]
"""Opens a short transaction, again and again."""


def assignment(connection: Connection, name: str) -> Assign:
    """Make the move that has a person look after failures.

    Raises:
        Refused: nobody has the name (``unknown_person``), or the person is disabled (``person_disabled``).
    """
    person = known_person(connection, name)
    if person.disabled_at is not None:
        raise Refused(f"{person.name} is disabled", "name another person: xbus person list", code="person_disabled")
    return Assign(person.name)


def newest_of_group(connection: Connection, fingerprint: str) -> int:
    """Find the id of the newest failure of a group.

    Raises:
        Refused: no failure has this fingerprint (``failure_group_unknown``).
    """
    return show_group(connection, fingerprint, limit=1).group.newest.id


def move_group(writing: Writing, fingerprint: str, move: FailureMove, at: datetime, until: int) -> int:
    """Carry a move out on a whole group, in as many short transactions as it takes.

    If a page fails, the pages before it stay moved. The same move once more does the rest.

    Args:
        until: the id of the last failure that the person means: one that comes meanwhile is news.

    Returns:
        How many failures were moved.

    Raises:
        Refused: ``fingerprint`` is none (``failure_group_unknown``).
    """
    moved, after = 0, 0
    while True:
        with writing() as connection:
            step = move_group_page(connection, fingerprint, move, at, after=after, until=until)
        moved += step.moved
        if step.last_id is None:
            return moved
        after = step.last_id
