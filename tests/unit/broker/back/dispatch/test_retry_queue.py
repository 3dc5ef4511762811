"""Delivery rows that are due, over a back that is nothing but lists."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from tests.support.clock import StandingClock
from tests.support.recipients import Cast
from xbus.broker.back.dispatch.dispatcher import Dispatcher
from xbus.broker.back.dispatch.retry_queue import DueRows, OrderedQueue, RetryQueue
from xbus.broker.back.dispatch.worker_availability import WorkerAvailability
from xbus.broker.back.log.reader import LogReader
from xbus.broker.back.progress.consumer_role import ConsumerRoles
from xbus.broker.back.progress.ledger import DeliveryLedger
from xbus.broker.back.recipients.circuit_breaker import BreakerProbes, CircuitBreakers
from xbus.broker.back.recipients.registry import Registry
from xbus.broker.back.recipients.served import RoleEvents, ServedRole
from xbus.broker.back.recipients.slots import Slots
from xbus.broker.back.runtime import BackIntervals, Runtime
from xbus.broker.journal.log.deliveries import read_next_due
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import DeliveryRow, PauseEntry
from xbus.states import DeliveryState


class Listed:
    """Log, ledger, registry and deliveries in one: rows are a list, and what is launched is another."""

    def __init__(self) -> None:
        self.rows: list[DeliveryRow] = []
        self.launched: list[int] = []
        self.clock = StandingClock()
        self.breakers = CircuitBreakers(self.clock, after=2, probe_interval=30)
        self.roles = ConsumerRoles(self.breakers, behind_after=10)
        self.moved: list[DeliveryRow] = []
        self.present: list[ServedRole] = []
        self.needed: list[str] = []
        self.while_reading: Callable[[], None] = lambda: None
        self.while_writing: Callable[[], None] = lambda: None
        self.reads = 0

    # the log

    async def read(self, statement: Any, role_id: int, *args: Any) -> Any:
        if statement is read_next_due:
            now, _ = args
            return min((row.due_at for row in self.rows if row.due_at and row.due_at > now), default=None)
        services, limit, now, _, _ = args
        found = [
            row
            for row in self.rows
            if row.role_id == role_id
            and (row.state is DeliveryState.RETRY or row.service in services)
            and (row.due_at is None or row.due_at <= now)
        ]
        await asyncio.sleep(0)
        self.while_reading()
        self.reads += 1
        return found[:limit]

    async def at(self, positions: Sequence[int]) -> list[LogEnvelope]:
        return [LogEnvelope(uuid.UUID(int=position).bytes, position, (), ()) for position in positions]

    # the ledger

    async def written(self) -> None:
        await asyncio.sleep(0)
        self.while_writing()

    def move(self, old: DeliveryRow, new: DeliveryRow) -> None:
        self.moved.append(new)
        self.rows = [new if row == old else row for row in self.rows]

    # the registry

    def all(self) -> list[ServedRole]:
        return self.present

    def get(self, role_id: int) -> ServedRole | None:
        return next((recipient for recipient in self.present if recipient.role.id == role_id), None)

    def is_served(self, service: str) -> bool:
        return any(recipient.role.service == service for recipient in self.present)

    # the deliveries

    async def workers_for(self, envelope: LogEnvelope, recipient: ServedRole) -> list[str]:
        return self.needed

    def pause_of(self, service: str) -> PauseEntry | None:
        return None

    async def bring(self, envelope: LogEnvelope, recipient: ServedRole, row: DeliveryRow) -> None:
        self.launched.append(row.position)
        self.roles[recipient.role.id].in_flight.begin(envelope.position)


@asynccontextmanager
async def due_rows(listed: Listed) -> AsyncIterator[RetryQueue]:
    async with asyncio.TaskGroup() as tasks:
        log, ledger = cast(LogReader, listed), cast(DeliveryLedger, listed)
        probing = BreakerProbes(listed.breakers, cast(Registry, listed), Slots(), RoleEvents())
        made = RetryQueue(
            DueRows(log, ledger, listed.roles, probing),
            cast(WorkerAvailability, listed),
            cast(Dispatcher, listed),
            OrderedQueue(listed.roles, log, ledger, listed.clock),
            probing,
            listed.roles,
            # Far behind the deadline of these tests: what comes by itself comes because it is due.
            Runtime(listed.clock, tasks, intervals=BackIntervals(rows=3600)),
        )
        yield made
        made.stop()


def row(
    recipient: ServedRole, position: int, state: DeliveryState = DeliveryState.RETRY, service: str = ""
) -> DeliveryRow:
    return DeliveryRow(
        recipient.role.id, uuid.UUID(int=position), position, state, 1, "lost", "it left", service or None
    )


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_consumer_that_comes_gets_its_rows_oldest_first() -> None:
    listed, store = Listed(), ServedRole(Cast().consumer("store"))
    listed.rows = [row(store, 3), row(store, 7)]
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
    assert listed.launched == [3, 7]
    assert listed.moved == []


async def test_a_row_waits_until_it_is_due() -> None:
    listed, store = Listed(), ServedRole(Cast().consumer("store"))
    due_at = listed.clock.now() + timedelta(seconds=10)
    listed.rows = [replace(row(store, 3), due_at=due_at), row(store, 7)]
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
        assert listed.launched == [7]
        listed.clock.go_on(10)
        rows.wake(store.role.id)
        await settle()
    assert listed.launched == [7, 3]


async def test_a_row_that_becomes_due_is_not_waited_for_longer_than_that() -> None:
    """The clock stands still, so that what is waited for here is a moment that the test has passed already."""
    listed, store = Listed(), ServedRole(Cast().consumer("store"))
    listed.rows = [replace(row(store, 3), due_at=listed.clock.now() + timedelta(milliseconds=1))]
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
        assert listed.launched == []
        listed.clock.go_on(1)
        while not listed.launched:
            await asyncio.sleep(0)


async def test_a_row_that_becomes_due_while_rows_are_read_is_not_waited_for() -> None:
    listed, store = Listed(), ServedRole(Cast().consumer("store"))
    listed.rows = [replace(row(store, 3), due_at=listed.clock.now() + timedelta(seconds=1))]
    listed.while_reading = lambda: listed.clock.go_on(1)
    async with due_rows(listed) as rows:
        rows.arrived(store)
        async with asyncio.timeout(10):
            while not listed.launched:
                await asyncio.sleep(0)


async def test_what_is_under_way_is_not_launched_again() -> None:
    listed, store = Listed(), ServedRole(Cast().consumer("store"))
    listed.rows, in_flight = [row(store, 3)], listed.roles[store.role.id].in_flight
    in_flight.begin(3)
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
    assert listed.launched == []


async def test_what_ends_while_its_row_is_read_is_not_launched_again() -> None:
    listed, store = Listed(), ServedRole(Cast().consumer("store"))
    listed.rows, in_flight = [row(store, 3)], listed.roles[store.role.id].in_flight
    in_flight.begin(3)

    def end() -> None:
        in_flight.end(3)
        listed.rows.clear()

    listed.while_reading = end
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
    assert listed.launched == []


async def test_what_ends_before_its_row_is_read_and_is_not_written_yet_is_not_launched_again() -> None:
    listed, store = Listed(), ServedRole(Cast().consumer("store"))
    listed.rows, in_flight = [row(store, 3)], listed.roles[store.role.id].in_flight
    in_flight.begin(3)
    listed.while_writing = lambda: in_flight.end(3)
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
    assert listed.launched == []


async def test_a_row_that_waits_for_a_worker_goes_when_that_comes() -> None:
    cast_of = Cast()
    listed, store, names = Listed(), ServedRole(cast_of.consumer("store")), ServedRole(cast_of.worker("names"))
    listed.rows, listed.needed = [row(store, 3, DeliveryState.WAITING, "names")], ["names"]
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
        assert listed.launched == []
        listed.present.append(names)
        rows.arrived(names)
        await settle()
    assert listed.launched == [3]


async def test_a_row_that_needs_another_worker_too_waits_for_that() -> None:
    cast_of = Cast()
    listed, store, names = Listed(), ServedRole(cast_of.consumer("store")), ServedRole(cast_of.worker("names"))
    listed.rows, listed.needed = [row(store, 3, DeliveryState.WAITING, "names")], ["names", "prices"]
    listed.present.append(names)
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
    assert listed.launched == []
    (waiting,) = listed.rows
    assert (waiting.state, waiting.service, waiting.attempts) == (DeliveryState.WAITING, "prices", 1)


async def test_a_role_is_looked_after_again_when_called_for() -> None:
    listed, store = Listed(), ServedRole(Cast().consumer("store"))
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
        listed.rows.append(row(store, 3))
        rows.wake(store.role.id)
        await settle()
    assert listed.launched == [3]


async def test_nothing_is_read_for_one_that_has_left() -> None:
    listed, store = Listed(), ServedRole(Cast().consumer("store"))
    async with due_rows(listed) as rows:
        rows.arrived(store)
        await settle()
        rows.left(store)
        reads = listed.reads
        rows.wake(store.role.id)
        await settle()
        assert listed.reads == reads
