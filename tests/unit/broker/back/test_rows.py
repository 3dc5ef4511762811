"""Delivery rows that are due, over a back that is nothing but lists."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from tests.support.recipients import Cast
from xbus.broker.back.delivery import Deliveries
from xbus.broker.back.ledger import Ledger
from xbus.broker.back.log import Log
from xbus.broker.back.recipient import Recipient
from xbus.broker.back.registry import Registry
from xbus.broker.back.rows import DueRows
from xbus.broker.journal.log import LogEnvelope
from xbus.broker.journal.writes import Delivery
from xbus.states import DeliveryState


class Listed:
    """Log, ledger, registry and deliveries in one: rows are a list, and what is launched is another."""

    def __init__(self) -> None:
        self.rows: list[Delivery] = []
        self.under_way: set[int] = set()
        self.launched: list[tuple[int, int]] = []
        self.moved: list[Delivery] = []
        self.present: list[Recipient] = []
        self.needed: list[str] = []
        self.while_reading: Callable[[], None] = lambda: None
        self.while_writing: Callable[[], None] = lambda: None
        self.reads = 0

    # the log

    async def read(self, statement: Any, role_id: int, services: Sequence[str], limit: int) -> list[Delivery]:
        found = [
            row
            for row in self.rows
            if row.role_id == role_id and (row.state is DeliveryState.RETRY or row.service in services)
        ]
        await asyncio.sleep(0)
        self.while_reading()
        self.reads += 1
        return found[:limit]

    async def at(self, positions: Sequence[int]) -> list[LogEnvelope]:
        return [LogEnvelope(uuid.UUID(int=position), position, ()) for position in positions]

    # the ledger

    async def written(self) -> None:
        await asyncio.sleep(0)
        self.while_writing()

    def move(self, old: Delivery, new: Delivery) -> None:
        self.moved.append(new)
        self.rows = [new if row == old else row for row in self.rows]

    # the registry

    def all(self) -> list[Recipient]:
        return self.present

    def is_served(self, service: str) -> bool:
        return any(recipient.role.service == service for recipient in self.present)

    # the deliveries

    def in_flight(self, role_id: int) -> frozenset[int]:
        return frozenset(self.under_way)

    def taken_up(self, role_id: int) -> set[int]:
        return set(self.under_way)

    async def workers_for(self, envelope: LogEnvelope, recipient: Recipient) -> list[str]:
        return self.needed

    async def launch(
        self, envelope: LogEnvelope, recipients: Sequence[Recipient], rows: Mapping[int, Delivery]
    ) -> None:
        for recipient in recipients:
            self.launched.append((envelope.position, rows[recipient.role.id].attempts))
        self.under_way.add(envelope.position)


@asynccontextmanager
async def due_rows(listed: Listed) -> AsyncIterator[DueRows]:
    async with asyncio.TaskGroup() as tasks:
        made = DueRows(cast(Log, listed), cast(Ledger, listed), cast(Registry, listed), cast(Deliveries, listed), tasks)
        yield made
        made.stop()


def row(recipient: Recipient, position: int, state: DeliveryState = DeliveryState.RETRY, service: str = "") -> Delivery:
    return Delivery(recipient.role.id, uuid.UUID(int=position), position, state, 1, "lost", "it left", service or None)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_consumer_that_comes_gets_its_rows_oldest_first_with_the_attempt_counted() -> None:
    listed, store = Listed(), Cast().consumer("store")
    listed.rows = [row(store, 3), row(store, 7)]
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
    assert listed.launched == [(3, 2), (7, 2)]
    assert [move.state for move in listed.moved] == [DeliveryState.RETRY] * 2


async def test_what_is_under_way_is_not_launched_again() -> None:
    listed, store = Listed(), Cast().consumer("store")
    listed.rows, listed.under_way = [row(store, 3)], {3}
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
    assert listed.launched == []


async def test_what_ends_while_its_row_is_read_is_not_launched_again() -> None:
    listed, store = Listed(), Cast().consumer("store")
    listed.rows, listed.under_way = [row(store, 3)], {3}

    def end() -> None:
        listed.under_way.clear()
        listed.rows.clear()

    listed.while_reading = end
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
    assert listed.launched == []


async def test_what_ends_before_its_row_is_read_and_is_not_written_yet_is_not_launched_again() -> None:
    listed, store = Listed(), Cast().consumer("store")
    listed.rows, listed.under_way = [row(store, 3)], {3}
    listed.while_writing = listed.under_way.clear
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
    assert listed.launched == []


async def test_a_row_that_waits_for_a_worker_goes_when_that_comes() -> None:
    cast_of = Cast()
    listed, store, names = Listed(), cast_of.consumer("store"), cast_of.worker("names")
    listed.rows, listed.needed = [row(store, 3, DeliveryState.WAITING, "names")], ["names"]
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
        assert listed.launched == []
        listed.present.append(names)
        rows.arrived(names)
        await settle()
    assert listed.launched == [(3, 2)]


async def test_a_row_that_needs_another_worker_too_waits_for_that() -> None:
    cast_of = Cast()
    listed, store, names = Listed(), cast_of.consumer("store"), cast_of.worker("names")
    listed.rows, listed.needed = [row(store, 3, DeliveryState.WAITING, "names")], ["names", "prices"]
    listed.present.append(names)
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
    assert listed.launched == []
    (waiting,) = listed.rows
    assert (waiting.state, waiting.service, waiting.attempts) == (DeliveryState.WAITING, "prices", 1)


async def test_a_role_is_looked_after_again_when_called_for() -> None:
    listed, store = Listed(), Cast().consumer("store")
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
        listed.rows.append(row(store, 3))
        rows.wake(store.role.id)
        await settle()
    assert listed.launched == [(3, 2)]


async def test_nothing_is_read_for_one_that_has_left() -> None:
    listed, store = Listed(), Cast().consumer("store")
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
        rows.left(store)
        reads = listed.reads
        rows.wake(store.role.id)
        await settle()
        assert listed.reads == reads
