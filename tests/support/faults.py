"""Databases that fail on purpose."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa


class Faults:
    """Makes commits fail on purpose.

    Args:
        engine: whose commits.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    @contextmanager
    def before_commit(self, skipped: int = 0) -> Iterator[threading.Event]:
        """The database goes away before the next COMMIT arrives, or a later one: what was written is rolled back."""
        with self._at_commit(skipped, lambda commit, connection: None) as happened:
            yield happened

    @contextmanager
    def late_commit(self) -> Iterator[list[Any]]:
        """The connection breaks before the next COMMIT arrives, whose message is still under way; gives its guard."""
        guards: list[Any] = []
        with self._at_commit(0, lambda commit, connection: guards.append(connection.guard)):
            yield guards

    @contextmanager
    def after_commit(self) -> Iterator[threading.Event]:
        """The database commits once more and goes away before it says so."""
        with self._at_commit(0, lambda commit, connection: commit(connection)) as happened:
            yield happened

    @contextmanager
    def _at_commit(self, skipped: int, last: Callable[[Callable[[Any], None], Any], None]) -> Iterator[threading.Event]:
        dialect: Any = self._engine.dialect
        commit = dialect.do_commit
        happened = threading.Event()
        commits = itertools.count()

        def fail(connection: Any) -> None:
            if next(commits) < skipped:
                commit(connection)
                return
            dialect.do_commit = commit
            last(commit, connection)
            happened.set()
            raise dialect.dbapi.OperationalError("the database went away")

        dialect.do_commit = fail
        try:
            yield happened
        finally:
            dialect.do_commit = commit


def commits_of(engine: sa.Engine) -> list[object]:
    """Grow with each transaction that an engine commits from now on, past SQLAlchemy or not."""
    dialect: Any = engine.dialect
    commits: list[object] = []
    commit = dialect.do_commit

    def do_commit(connection: object) -> None:
        commits.append(connection)
        commit(connection)

    dialect.do_commit = do_commit
    return commits
