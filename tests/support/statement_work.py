"""Counts how much a database works for each statement, which a busy machine does not change."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

STEPS = 30
"""Instructions of SQLite's machine that count as one: the least that reading a row of a table costs is three."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work for one statement.

    Args:
        amount: on PostgreSQL the most rows that one step of its plan read; on SQLite its instructions, in STEPS.
    """

    statement: str
    amount: float


@contextmanager
def work_for(engine: sa.Engine) -> Iterator[list[Work]]:
    """Collect the work for each statement that reads."""
    found: list[Work] = []
    measure = _measure_postgresql if engine.dialect.name == "postgresql" else _measure_sqlite

    def collect(connection: sa.Connection, _: Any, statement: str, parameters: Any, *__: Any) -> None:
        if statement.lstrip().upper().startswith(("SELECT", "WITH")):
            found.append(Work(statement, measure(connection, statement, parameters)))

    sa.event.listen(engine, "before_cursor_execute", collect)
    yield found
    sa.event.remove(engine, "before_cursor_execute", collect)


def _measure_sqlite(connection: sa.Connection, statement: str, parameters: Any) -> float:
    done = [0]

    def count() -> None:
        done[0] += 1

    driver: Any = connection.connection.driver_connection
    driver.set_progress_handler(count, STEPS)
    try:
        driver.execute(statement, parameters).fetchall()
    finally:
        driver.set_progress_handler(None, 0)
    return done[0]


def _measure_postgresql(connection: sa.Connection, statement: str, parameters: Any) -> float:
    with closing(connection.connection.cursor()) as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
        ((plans,),) = cursor.fetchall()
    return max(map(_rows, _steps(plans[0]["Plan"])))


def _steps(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for step in plan.get("Plans", []):
        yield from _steps(step)


def _rows(step: dict[str, Any]) -> float:
    read = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck", "Rows Removed by Join Filter")
    rows: float = sum(step.get(name, 0) for name in read)
    return rows * float(step["Actual Loops"])
