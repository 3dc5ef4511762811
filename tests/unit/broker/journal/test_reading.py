"""What is read again and again takes no longer the more the journal holds."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.journal import memory_engine
from xbus.broker.journal.log.backlog_changes import is_open, read_concerned
from xbus.broker.journal.log.deliveries import read_due_deliveries, read_next_due
from xbus.broker.journal.log.overlays import read_overlays
from xbus.broker.journal.log.reading import (
    read_at,
    read_ends,
    read_free_keys,
    read_held_keys,
    read_key_rows,
    read_log,
    read_sealed,
    read_states,
)
from xbus.broker.journal.log.repeats import read_parked
from xbus.broker.journal.log.replies import read_asks, read_cancelled, read_held_replies, read_replies
from xbus.broker.journal.operations.corrections import read_corrected_events, read_corrected_item
from xbus.broker.journal.operations.parked import Filters, read_parked_page
from xbus.clock import SystemClock
from xbus.ids import Ids

GROWING = ("envelope", "event", "segment", "delivery", "reply", "failure", "history", "correction", "parked_item")
SOME_ID = Ids(SystemClock()).new()
NOW = SystemClock().now()


@pytest.mark.parametrize(
    ("read", "args"),
    [
        (read_log, (0, 10)),
        (read_at, ([1, 2],)),
        (read_sealed, ([SOME_ID],)),
        (read_due_deliveries, (1, ["names"], 10, NOW, NOW)),
        (read_next_due, (1, NOW)),
        (read_overlays, (1, SOME_ID)),
        (read_overlays, (None, SOME_ID)),
        (read_corrected_events, (7,)),
        (read_corrected_item, (SOME_ID, 3)),
        (read_parked_page, (1, Filters(service="store", event_type="notes"), 0, 10)),
        (read_held_keys, ([1, 2],)),
        (read_free_keys, ([1, 2],)),
        (read_key_rows, (1, "a", 10)),
        (read_states, (1, [1, 2])),
        (read_concerned, ([1, 2], 0, 10)),
        (is_open, ([1, 2],)),
        (read_asks, ()),
        (read_held_replies, ()),
        (read_replies, ([SOME_ID],)),
        (read_cancelled, ([SOME_ID],)),
    ],
)
def test_rows_are_found_by_an_index(read: Callable[..., Any], args: tuple[Any, ...]) -> None:
    steps = plan(read, *args)
    assert steps
    assert not [step for step in steps for table in GROWING if step.split()[:2] == ["SCAN", table]]


def test_the_newest_correction_is_found_at_the_end_of_its_index() -> None:
    assert [step for step in plan(read_ends) if "correction" in step] == [
        "SCAN correction USING INDEX ix_correction_for_all"
    ]
    assert not [step for step in plan(read_ends) if "ORDER BY" in step]


def test_what_is_due_is_not_sorted_each_time() -> None:
    assert not [step for step in plan(read_due_deliveries, 1, ["names"], 10, NOW, NOW) if "ORDER BY" in step]


def test_the_rows_of_a_key_are_found_by_the_key() -> None:
    (step,) = [step for step in plan(read_key_rows, 1, "a", 10) if "delivery" in step]
    assert "ordering_key=?" in step
    assert not [step for step in plan(read_key_rows, 1, "a", 10) if "ORDER BY" in step]


def test_what_an_envelope_is_parked_for_is_found_by_the_envelope() -> None:
    (step,) = [step for step in plan(read_parked, SOME_ID) if "delivery" in step]
    assert "envelope_id=?" in step


def plan(read: Callable[..., Any], *args: Any) -> list[str]:
    """How SQLite goes about a read, step by step."""
    steps: list[str] = []

    def explain(connection: sa.Connection, _: Any, statement: str, parameters: Any, *__: Any) -> None:
        cursor = connection.connection.cursor()
        cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
        steps.extend(row[3] for row in cursor.fetchall())

    with memory_engine().connect() as connection:
        sa.event.listen(connection, "before_cursor_execute", explain)
        read(connection, *args)
    return steps
