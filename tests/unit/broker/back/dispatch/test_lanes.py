"""Lanes over a log that is a list: who gets which envelope together with whom."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import cast

from tests.support.delivering import consumer_roles, graph_of
from tests.support.recipients import Cast
from xbus.broker.back.dispatch.lanes import Lanes
from xbus.broker.back.dispatch.pages import Way
from xbus.broker.back.log import LogPage, LogReader, SmallEnvelope
from xbus.broker.back.progress.consumer_role import Lane
from xbus.broker.back.progress.ledger import DeliveryLedger
from xbus.broker.back.recipients.served import RoleEvents, ServedRole
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.writes import Sealed
from xbus.broker.journal.writes.cursor import Cursor
from xbus.clock import SystemClock
from xbus.graph import Graph
from xbus.periodic import every

PAGE = 3
BOTH = {"store", "audit"}


class ListedLog:
    """A log of envelopes that all have one graph."""

    def __init__(self, graph: Graph, head: int = 0) -> None:
        self._graph = graph
        self._listeners: list[Callable[[Sequence[Sealed]], None]] = []
        self.head = head
        self.known_logins: dict[int, str | None] = {}
        self.removed: set[int] = set()
        self.pages = 0
        self.large: set[int] = set()
        """The positions of envelopes that are not small."""

    async def grow(self, head: int) -> None:
        self.head = head
        for listener in self._listeners:
            listener(())

    async def page(self, after: int, services: Collection[str]) -> LogPage:
        await asyncio.sleep(0)
        self.pages += 1
        there = (position for position in range(after + 1, self.head + 1) if position not in self.removed)
        found = [envelope_at(position) for position in islice(there, PAGE)]
        return LogPage(found, found[-1].position if found else self.head)

    async def small(self, envelopes: Sequence[LogEnvelope]) -> dict[int, SmallEnvelope]:
        return {each.position: SmallEnvelope(each, [], 0) for each in envelopes if each.position not in self.large}

    async def emitter_logins(self, emitter_ids: Collection[int]) -> dict[int, str | None]:
        return dict.fromkeys(emitter_ids)

    async def graphs(self, envelope: LogEnvelope) -> list[Graph]:
        return [self._graph]

    def on_grown(self, listener: Callable[[Sequence[Sealed]], None]) -> None:
        self._listeners.append(listener)


def envelope_at(position: int) -> LogEnvelope:
    event = LogEvent(uuid.UUID(int=1000 + position).bytes, "flights", 1, 0)
    return LogEnvelope(uuid.UUID(int=position).bytes, position, (event,), (1,))


class Noted:
    """Notes what it is to deliver, and takes as long as the test wants."""

    def __init__(self) -> None:
        self.delivered: list[tuple[int, set[str]]] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.left_out: list[ServedRole] = []
        """Who does not get the next envelope."""
        self.room = 0
        """How many small envelopes go at once."""
        self.at_once: list[tuple[list[int], set[str]]] = []

    def may_bundle(self, envelope: LogEnvelope, recipients: Sequence[ServedRole]) -> bool:
        return True

    def deliver_at_once(
        self, smalls: Sequence[SmallEnvelope], ways: Sequence[Way], recipients: Mapping[Way, Sequence[ServedRole]]
    ) -> int:
        assert len(ways) == len(smalls)
        positions = [small.position for small in smalls[: self.room]]
        if positions:
            logins = {recipient.role.login for whom in recipients.values() for recipient in whom}
            self.at_once.append((positions, logins))
        return len(positions)

    async def deliver(
        self,
        envelope: LogEnvelope,
        recipients: Iterable[ServedRole],
        small: SmallEnvelope | None,
        *,
        in_company: bool,
    ) -> Collection[ServedRole]:
        self.delivered.append((envelope.position, {recipient.role.login for recipient in recipients}))
        await self.may_go_on.wait()
        left_out, self.left_out = self.left_out, []
        return left_out

    def of(self, login: str) -> list[int]:
        """The positions that one of them was to get, in order."""
        return [position for position, logins in self.delivered if login in logins]


class NoShortWay:
    """Takes nothing: all is unusual."""

    def take(self, lane: Lane, sealed: Sequence[Sealed]) -> None:
        """Leave it to the lane."""

    def forget_ways(self) -> None:
        """Know none anyway."""


class Bench:
    """Lanes, and all that they need."""

    def __init__(self, tasks: asyncio.TaskGroup, head: int) -> None:
        cast_of = Cast()
        self.store = ServedRole(cast_of.consumer("store"))
        self.audit = ServedRole(cast_of.consumer("audit"))
        self.stranger = ServedRole(cast_of.consumer("stranger"))
        self.names = ServedRole(cast_of.worker("names"))
        self.log = ListedLog(graph_of({"names": ["store", "audit"], "store": [], "audit": []}), head)
        roles = [each.role.id for each in (self.store, self.audit, self.stranger)]
        self.events, self.roles = RoleEvents(), consumer_roles()
        self.ledger = DeliveryLedger(cast(Journal, None), SystemClock(), self.roles, self.events, retry_seconds=0)
        self.ledger.adopt({role: Cursor(role, 1, None, 0) for role in roles})
        self.noted = Noted()
        self.lanes = Lanes(
            cast(LogReader, self.log),
            self.ledger,
            self.noted,
            NoShortWay(),
            self.roles,
            tasks,
            self.events,
            gather_seconds=0,
        )
        self.events.arrived.subscribe(self.roles.arrived, self.lanes.arrived)
        self.events.left.subscribe(self.roles.left, self.lanes.left)
        self.events.gone.subscribe(self.roles.gone)
        self.events.slow.subscribe(self.lanes.split)

    def leave(self, recipient: ServedRole) -> None:
        """Have a recipient go at once."""
        self.events.left.publish(recipient)
        self.events.gone.publish(recipient)

    def cursor(self, recipient: ServedRole) -> Cursor:
        cursor = self.ledger.cursor(recipient.role.id)
        assert cursor is not None
        return cursor


@asynccontextmanager
async def bench(head: int = 0) -> AsyncIterator[Bench]:
    async with asyncio.TaskGroup() as tasks:
        made = Bench(tasks, head)
        noting = tasks.create_task(every(0, made.lanes.note_idle))
        yield made
        noting.cancel()
        made.lanes.stop()


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_who_was_left_out_gets_it_before_its_lane_goes_on() -> None:
    async with bench(head=3) as made:
        made.noted.may_go_on.clear()
        made.events.arrived.publish(made.store)
        made.events.arrived.publish(made.audit)
        await until(lambda: made.noted.delivered == [(1, {"store", "audit"})])
        # The one goes on by itself; then the other holds it up in the run that both are still in, and is alone already.
        made.events.slow.publish(made.store)
        made.events.slow.publish(made.audit)
        made.noted.left_out = [made.audit, made.store]
        made.noted.may_go_on.set()
        await until(lambda: made.noted.of("audit")[-1:] == [3] and made.noted.of("store")[-1:] == [3])
        assert (1, {"audit"}) in made.noted.delivered
        assert (1, {"store"}) in made.noted.delivered
        assert made.noted.delivered.count((1, {"store"})) <= 2


async def test_a_consumer_gets_all_from_where_its_role_stands() -> None:
    async with bench(head=10) as made:
        for position in range(1, 5):
            made.cursor(made.store).settle(position)
        made.events.arrived.publish(made.store)
        await until(lambda: made.noted.of("store") == [5, 6, 7, 8, 9, 10])


async def test_what_is_settled_already_is_not_delivered_again() -> None:
    async with bench(head=5) as made:
        made.cursor(made.store).settle(2)
        made.cursor(made.store).settle(4)
        made.events.arrived.publish(made.store)
        await until(lambda: made.noted.of("store") == [1, 3, 5])


async def test_those_who_come_together_share_runs() -> None:
    async with bench(head=3) as made:
        made.events.arrived.publish(made.store)
        made.events.arrived.publish(made.audit)
        await until(lambda: len(made.noted.delivered) == 3)
        assert made.noted.delivered == [(position, {"store", "audit"}) for position in (1, 2, 3)]


async def test_one_that_comes_late_catches_up_alone_and_then_joins() -> None:
    async with bench(head=5) as made:
        made.events.arrived.publish(made.store)
        await until(lambda: made.noted.of("store") == [1, 2, 3, 4, 5])
        made.events.arrived.publish(made.audit)
        await until(lambda: made.noted.of("audit") == [1, 2, 3, 4, 5])
        await settle()
        await made.log.grow(7)
        await until(lambda: len(made.noted.of("audit")) == 7)
        assert made.noted.delivered[-2:] == [(6, {"store", "audit"}), (7, {"store", "audit"})]


async def test_new_envelopes_wake_a_lane_at_the_end() -> None:
    async with bench() as made:
        made.events.arrived.publish(made.store)
        await settle()
        assert made.noted.delivered == []
        await made.log.grow(1)
        await until(lambda: made.noted.of("store") == [1])


async def test_what_a_role_is_not_owed_is_passed_over() -> None:
    async with bench(head=4) as made:
        made.events.arrived.publish(made.stranger)
        await until(lambda: made.cursor(made.stranger).position == 4)
        assert made.noted.delivered == []


async def test_a_role_is_owed_its_part_of_the_log_only() -> None:
    async with bench(head=9) as made:
        cursor = made.cursor(made.store)
        cursor.from_position, cursor.until_position = 3, 6
        made.events.arrived.publish(made.store)
        await until(lambda: cursor.is_settled(9))
        assert made.noted.of("store") == [3, 4, 5]


async def test_a_worker_reads_nothing() -> None:
    async with bench(head=3) as made:
        made.events.arrived.publish(made.names)
        await settle()
        assert made.noted.delivered == []


async def test_one_that_leaves_gets_nothing_more_while_the_others_go_on() -> None:
    async with bench(head=6) as made:
        made.noted.may_go_on.clear()
        made.events.arrived.publish(made.store)
        made.events.arrived.publish(made.audit)
        await until(lambda: made.noted.delivered)
        made.leave(made.store)
        made.noted.may_go_on.set()
        await until(lambda: made.noted.of("audit") == [1, 2, 3, 4, 5, 6])
        assert made.noted.of("store") == [1]


async def test_the_last_one_to_leave_ends_the_lane_in_the_midst() -> None:
    async with bench(head=6) as made:
        made.noted.may_go_on.clear()
        made.events.arrived.publish(made.store)
        await until(lambda: made.noted.delivered)
        made.leave(made.store)
        made.noted.may_go_on.set()
        await settle()
        assert made.noted.of("store") == [1]


async def test_one_that_holds_others_up_goes_on_alone_and_misses_nothing() -> None:
    async with bench(head=6) as made:
        made.noted.may_go_on.clear()
        made.events.arrived.publish(made.store)
        made.events.arrived.publish(made.audit)
        await until(lambda: made.noted.delivered)
        made.events.slow.publish(made.store)
        made.noted.may_go_on.set()
        await until(lambda: made.noted.of("audit") == [1, 2, 3, 4, 5, 6])
        await until(lambda: len(made.noted.of("store")) >= 6)
        assert sorted(set(made.noted.of("store"))) == [1, 2, 3, 4, 5, 6]


async def test_one_alone_holds_nobody_up() -> None:
    async with bench(head=3) as made:
        made.noted.may_go_on.clear()
        made.events.arrived.publish(made.store)
        await until(lambda: made.noted.delivered)
        made.events.slow.publish(made.store)
        made.noted.may_go_on.set()
        await until(lambda: made.noted.of("store") == [1, 2, 3])


async def test_what_was_removed_of_the_log_is_passed_at_once() -> None:
    async with bench(head=100_000) as made:
        made.log.removed = {*range(2, 99_998), *range(99_999, 100_001)}
        made.events.arrived.publish(made.store)
        await until(lambda: made.cursor(made.store).is_settled(100_000))
        assert made.noted.of("store") == [1, 99_998]
        made.cursor(made.store).settle(1)
        made.cursor(made.store).settle(99_998)
        assert made.cursor(made.store).position == 100_000
        assert made.log.pages < 5


async def test_those_that_go_the_same_way_are_handed_out_together() -> None:
    async with bench(head=9) as made:
        made.noted.room = PAGE
        made.log.large = {5}
        made.cursor(made.audit).settle_range(7, 8)
        made.events.arrived.publish(made.store)
        made.events.arrived.publish(made.audit)
        await until(lambda: made.noted.at_once[-1:] == [([9], BOTH)])
        assert made.noted.at_once == [([1, 2, 3], BOTH), ([4], BOTH), ([6], BOTH), ([7, 8], {"store"}), ([9], BOTH)]
        assert made.noted.delivered == [(5, BOTH)]


async def test_what_finds_no_room_is_waited_for_and_the_rest_goes_together_again() -> None:
    async with bench(head=6) as made:
        made.noted.may_go_on.clear()
        made.events.arrived.publish(made.store)
        await until(lambda: made.noted.delivered == [(1, {"store"})])
        made.noted.room = 2
        made.noted.may_go_on.set()
        await until(lambda: made.noted.at_once[-1:] == [([6], {"store"})])
        assert made.noted.at_once == [([2, 3], {"store"}), ([4, 5], {"store"}), ([6], {"store"})]
        assert made.noted.delivered == [(1, {"store"})]


async def test_a_role_that_leaves_between_comes_back_to_what_was_not_handed_out() -> None:
    async with bench(head=6) as made:
        made.noted.room = 2
        made.events.arrived.publish(made.store)
        await until(lambda: made.noted.at_once)
        made.noted.room = 0
        made.noted.may_go_on.clear()
        await until(lambda: made.noted.delivered)
        (first, *_) = made.noted.delivered
        for position in range(1, first[0]):
            made.cursor(made.store).settle(position)
        made.leave(made.store)
        made.noted.may_go_on.set()
        made.noted.delivered.clear()
        made.events.arrived.publish(made.store)
        await until(lambda: made.noted.of("store") == list(range(first[0], 7)))


async def test_the_next_page_is_read_while_one_is_handed_out_and_no_further_one() -> None:
    async with bench(head=3 * PAGE) as made:
        made.noted.may_go_on.clear()
        made.events.arrived.publish(made.store)
        await until(lambda: made.noted.delivered)
        await settle()
        assert made.log.pages == 2
        made.leave(made.store)
        await settle()
        assert made.log.pages == 2
        made.noted.may_go_on.set()


async def test_at_the_end_of_the_log_nothing_is_read_before_it_grows() -> None:
    async with bench(head=PAGE) as made:
        made.events.arrived.publish(made.store)
        await until(lambda: made.noted.of("store") == [1, 2, 3])
        await settle()
        assert made.log.pages == 1
        await made.log.grow(PAGE + 1)
        await until(lambda: made.noted.of("store") == [1, 2, 3, 4])
        assert made.log.pages == 2
