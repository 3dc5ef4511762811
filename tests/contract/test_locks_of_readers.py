"""Steps of the back and acts of people lock the ranges of a reader in one order, so that none waits for the other."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from tests.support.waiting import wait_until
from xbus import model
from xbus.broker.journal.configuration import BusSpec, EventTypeSpec, ReaderSpec, apply, make_plan, read_stored
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.slices.values import Place
from xbus.broker.journal.readers.ranges import read_ranges
from xbus.broker.journal.readers.steps import ActNote, LeaseOf, ReaderAct, SettleStep, put_out, settle_and_put_out, take

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=10)
PROGRAM = uuid.UUID(int=1)
BUS = BusSpec(
    event_types={"orders": EventTypeSpec("orders", False, {})},
    readers={"billing": ReaderSpec("billing", frozenset({"orders"}), ranges=2)},
)


def test_a_step_with_two_ranges_holds_none_while_a_person_locks_them(postgres_url: str) -> None:
    with writing(postgres_url) as connection:
        apply(connection, make_plan(read_stored(connection), BUS), NOW)
        low, high = sorted(read_ranges(connection), key=lambda each: each.id)
        taken = [take(connection, LeaseOf(each.id, each.counter, PROGRAM), None, LATER) for each in (low, high)]
        lower, higher = (LeaseOf(each.id, each.counter, PROGRAM) for each in taken)
        put_out(connection, higher, Place(2), LATER)

    def step() -> Place:
        note = ActNote(uuid.uuid4(), NOW, "billing_1", ReaderAct.CHECKPOINT)
        with writing(postgres_url) as connection:
            done = SettleStep(higher, Place(2), note)
            return settle_and_put_out(connection, done, lower, Place(2), LATER)[1].batch_end

    def a_step_waits() -> bool:
        with reading(postgres_url) as connection:
            return bool(connection.execute(sa.text("SELECT 1 FROM pg_locks WHERE NOT granted")).all())

    row = model.reader_range.c
    with ThreadPoolExecutor(1) as thread:
        with writing(postgres_url) as person:
            person.execute(sa.select(row.id).where(row.id == low.id).with_for_update())
            stepping = thread.submit(step)
            wait_until(a_step_waits, "the step waits for the person")
            person.execute(sa.select(row.id).where(row.id == high.id).with_for_update(nowait=True))
        assert stepping.result() == Place(2)
