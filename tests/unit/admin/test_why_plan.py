"""``xbus why`` looks rows up: no question walks through a table that grows with what is sent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.journal import NOW, memory_engine
from tests.support.long_log import newest_graphs, put_log
from tests.support.why import ToldBroker
from xbus import model
from xbus.admin.why.findings import Finding
from xbus.admin.why.inquiry import Inquiry
from xbus.broker.journal.operations.why.envelopes import AskedPart

T = TypeVar("T")

GROWING = ("envelope", "event", "segment", "delivery", "failure", "history", "parked_item", "correction", "reply")

BOUNDED = (
    "SCAN envelope USING INDEX ix_envelope_opened_at",
    "SCAN envelope USING COVERING INDEX ix_envelope_opened_at",
)
"""From an end of the index, up to a limit."""


@pytest.fixture
def engine() -> Iterator[sa.Engine]:
    engine = memory_engine()
    yield engine
    engine.dispose()


@contextmanager
def steps_of(engine: sa.Engine) -> Iterator[list[str]]:
    """Collect how SQLite goes about each read."""
    steps: list[str] = []

    def explain(connection: sa.Connection, _: Any, statement: str, parameters: Any, *__: Any) -> None:
        cursor = connection.connection.cursor()
        cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
        steps.extend(f"{row[3]} [{statement}]" for row in cursor.fetchall())

    sa.event.listen(engine, "before_cursor_execute", explain)
    yield steps
    sa.event.remove(engine, "before_cursor_execute", explain)


@pytest.mark.parametrize(
    "question",
    [
        lambda inquiry, name: inquiry.by_id(name),
        lambda inquiry, name: inquiry.by_id(name[:9]),
        lambda inquiry, name: inquiry.by_id(name, AskedPart("store_1", 1, 0)),
        lambda inquiry, name: inquiry.by_id("0" * 32),
        lambda inquiry, name: inquiry.by_key("north", "order 1"),
        lambda inquiry, name: inquiry.role("store_1"),
        lambda inquiry, name: inquiry.role("names_1"),
        lambda inquiry, name: inquiry.emitter("north"),
    ],
    ids=["envelope", "prefix", "item", "unknown", "key", "consumer", "worker", "emitter"],
)
def test_no_question_walks_through_a_table_that_grows(
    engine: sa.Engine, question: Callable[[Inquiry, str], list[Finding]]
) -> None:
    with engine.begin() as connection:
        graphs = newest_graphs(connection)
        name = put_log(connection, [[graphs["flights"]]])[0].hex
        role_id = connection.execute(sa.select(model.role.c.id).where(model.role.c.login == "store_1")).scalar_one()
        row = {"role_id": role_id, "envelope_id": sa.select(model.envelope.c.id).scalar_subquery(), "position": 1}
        row |= {"state": "held", "attempts": 0, "code": "held", "cause": "", "changed_at": NOW, "ordering_key": "a"}
        connection.execute(sa.insert(model.delivery).values(**row))

    def read(reading: Callable[[sa.Connection], T]) -> T:
        with engine.connect() as connection:
            return reading(connection)

    with steps_of(engine) as steps:
        assert question(Inquiry(read, ToldBroker(lambda login: 0), StandingClock()), name)
    walks = [step for step in steps if any(step.startswith(f"SCAN {table} ") for table in GROWING)]
    assert [step for step in walks if not step.startswith(BOUNDED)] == []
