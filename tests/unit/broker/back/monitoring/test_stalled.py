"""Health tells of deliveries that do not get on, by a clock that stands still, and no longer once they do."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.journal import NOW, small_bus
from tests.support.recipients import REFUSED
from xbus import model
from xbus.broker.back.monitoring.presence import Presence, RecipientSigns
from xbus.broker.back.monitoring.stalled import StalledDeliveries
from xbus.broker.journal.configuration import BusSpec, apply, make_plan, read_stored
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.operations import stalled
from xbus.config import HealthLimits
from xbus.states import DeliveryState
from xbus.supervision.health import Health

MINUTE = 60.0

DEFAULTS = HealthLimits()


class Watch:
    """A broker whose health is looked at.

    Args:
        broker: runs.
        limits: of its configuration.
    """

    def __init__(self, broker: Broker, limits: HealthLimits) -> None:
        self.broker = broker
        self.clock = broker.clock
        self.health = Health("back", self.clock)
        registry = broker.back.registry
        self.stalled = StalledDeliveries(
            broker.journal, broker.configuration, registry, self.health, self.clock, limits
        )
        broker.back.events.arrived.subscribe(self.stalled.arrived)
        self.presence = Presence(
            broker.journal,
            broker.configuration,
            registry,
            self.health,
            self.clock,
            RecipientSigns(is_silent=lambda recipient: False, is_troubled=lambda role_id: False),
        )

    async def look(self, minutes: float = 0) -> list[tuple[str, str]]:
        """What health tells after a time: each code with what it is about."""
        self.clock.go_on(MINUTE * minutes)
        await self.presence.note()
        await self.stalled.look()
        return sorted((problem.code, problem.about) for problem in self.health.problems)

    async def until_in(self, state: DeliveryState, number: int) -> None:
        """Wait until so many deliveries are in a state."""
        is_in = model.delivery.c.state == state.value
        counted = sa.select(sa.func.count()).select_from(model.delivery).where(is_in)
        while await self.broker.journal.read(lambda it: int(it.execute(counted).scalar_one())) != number:
            await asyncio.sleep(0)

    def cause(self, code: str) -> str:
        return next(problem.cause for problem in self.health.problems if problem.code == code)

    def next_step(self, code: str) -> str:
        return next(problem.next_step for problem in self.health.problems if problem.code == code)


@asynccontextmanager
async def watching(journal: Journal, limits: HealthLimits = DEFAULTS, **options: Any) -> AsyncIterator[Watch]:
    async with running(journal, clean=False, **options) as broker:
        yield Watch(broker, limits)


async def wish(watch: Watch, login: str, **minutes: Any) -> None:
    """Have a role say for itself when health is to tell of it."""

    def change(connection: Any) -> None:
        role = replace(small_bus().roles[login], **minutes)
        apply(connection, make_plan(read_stored(connection), BusSpec(roles={login: role})), NOW)

    await watch.broker.journal.run(change)
    await watch.broker.refresh_configuration()


async def test_a_consumer_that_is_away_and_owed_something(journal: Journal) -> None:
    async with watching(journal) as watch:
        await watch.broker.register("store_1")
        await watch.broker.register("store_2")
        assert await watch.look() == []
        await watch.broker.leave("store_2")
        assert await watch.look() == []
        assert await watch.look(20) == [], "it is owed nothing"
        for number in range(3):
            await watch.broker.put(b"%d" % number)
        assert await watch.look() == [("consumer_absent", "store_2")]
        assert watch.cause("consumer_absent") == (
            "the role store_2 is absent since 2020-02-29 12:00:00Z, and 3 envelopes wait for it, the oldest since "
            "2020-02-29 12:00:00Z"
        )
        assert "xbus recipient detach store_2" in watch.next_step("consumer_absent")
        await watch.broker.register("store_2")
        assert watch.health.healthy, "it is over at once"
        await watch.broker.until(lambda: len(watch.broker.items("store_2")) == 3)
        assert await watch.look(20) == []


async def test_it_is_told_once_it_is_away_for_long_enough(journal: Journal) -> None:
    async with watching(journal) as watch:
        await watch.broker.register("store_1")
        await watch.broker.register("store_2")
        await watch.look()
        await watch.broker.leave("store_2")
        await watch.broker.put(b"a")
        assert await watch.look() == []
        assert await watch.look(14.9) == []
        assert await watch.look(0.1) == [("consumer_absent", "store_2")]


async def test_one_that_was_never_seen_is_away_since_something_waits(journal: Journal) -> None:
    async with watching(journal) as watch:
        await watch.broker.put(b"a")
        assert await watch.look(14) == []
        assert await watch.look(1) == [("consumer_absent", "store_1"), ("consumer_absent", "store_2")]


async def test_each_role_may_say_for_itself_how_long(journal: Journal) -> None:
    async with watching(journal, replace(DEFAULTS, absent_minutes=0)) as watch:
        await wish(watch, "store_1", absent_minutes=math.inf)
        await wish(watch, "store_2", absent_minutes=5)
        await watch.broker.put(b"a")
        assert await watch.look(4) == []
        assert await watch.look(1) == [("consumer_absent", "store_2")]
        assert await watch.look(1e6) == [("consumer_absent", "store_2")]
        await wish(watch, "store_2")
        assert await watch.look() == [("consumer_absent", "store_2")]


async def test_what_a_role_is_not_owed_is_read_once(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def find(connection: Any, cursor: Any, service_id: int, after: int) -> Any:
        read.append(after)
        return stalled.find_owed_ahead(connection, cursor, service_id, after, page_positions=2)

    monkeypatch.setattr("xbus.broker.back.monitoring.stalled.find_owed_ahead", find)
    async with watching(journal, replace(DEFAULTS, absent_minutes=0)) as watch:
        for name in ("store_1", "store_2"):
            await wish(watch, name, absent_minutes=math.inf)
        # The type leads nowhere: nobody is owed it.
        for _ in range(5):
            await watch.broker.put(b"a", type_name="secrets")
        await wish(watch, "store_1", absent_minutes=0)
        for _ in range(5):
            assert await watch.look() == []
        assert read == [0, 2, 4]
        await watch.broker.put(b"a")
        assert await watch.look() == [("consumer_absent", "store_1")]
        assert await watch.look() == [("consumer_absent", "store_1")]
        assert read == [0, 2, 4, 5, 5]


async def test_a_worker_that_is_away_while_envelopes_wait_for_it(journal: Journal) -> None:
    async with watching(journal) as watch:
        await watch.broker.register("store_1")
        await watch.broker.register("store_2")
        for _ in range(2):
            await watch.broker.put(b"a", type_name="flights")
        await watch.until_in(DeliveryState.WAITING, 4)
        assert await watch.look() == []
        assert await watch.look(1e4) == [("worker_absent", "names")]
        assert "2 envelopes wait for one" in watch.cause("worker_absent")
        assert watch.next_step("worker_absent").startswith("start a worker for names_1")
        await watch.broker.register("names_1")
        assert watch.health.healthy
        await watch.broker.until(lambda: len(watch.broker.items("store_1")) == 2)
        assert await watch.look() == []


async def test_what_is_parked(journal: Journal) -> None:
    async with watching(journal) as watch:
        await wish(watch, "store_2", parked_minutes=10)
        for login in ("store_1", "store_2"):
            await watch.broker.register(login, xbus_take_event=REFUSED)
        await watch.broker.put(b"a")
        await watch.until_in(DeliveryState.PARKED, 2)
        assert await watch.look() == [("parked", "store_1")]
        assert watch.cause("parked").startswith("1 envelope is parked for the role store_1, the oldest since ")
        assert "xbus parked list --role store_1" in watch.next_step("parked")
        assert await watch.look(1e4) == [("parked", "store_1"), ("parked", "store_2")]


class Overtaken:
    """A journal that answers what a role is owed only once something else has happened.

    Args:
        journal: reads.
        event: happens meanwhile.
    """

    def __init__(self, journal: Journal, event: Callable[[], Awaitable[object]]) -> None:
        self._journal = journal
        self._event = event

    async def read(self, statement: Any, *args: Any) -> Any:
        found = await self._journal.read(statement, *args)
        if statement is stalled.count_owed_rows:
            await self._event()
        return found


async def test_one_that_comes_while_it_is_looked_is_there(journal: Journal) -> None:
    async with watching(journal) as watch:
        await wish(watch, "store_2", absent_minutes=math.inf)
        await watch.broker.put(b"a")
        watch.stalled._journal = cast(Journal, Overtaken(journal, lambda: watch.broker.register("store_1")))
        assert await watch.look(20) == []
        assert watch.broker.back.registry.get(watch.broker.scribe.role_id()) is not None
