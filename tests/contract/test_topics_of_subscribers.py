"""A client gets what is sent to a topic between its subscription and its end; on every database."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any, cast

import pytest
import sqlalchemy as sa

from tests.contract.test_readers import change
from tests.support.journal import NOW, Scribe, settle_all
from xbus.broker.back.log import LogReader, LogSlices
from xbus.broker.back.readers import FailingBatches, ReaderDesk, ReadingProgram, Settlement
from xbus.broker.back.readers.calls import BatchCall
from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    ProfileSpec,
    ServiceSpec,
    apply,
    make_plan,
    read_stored,
)
from xbus.broker.journal.configuration.checked import find_table_problems
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.log.slices.values import Place
from xbus.broker.journal.readers.settings import read_readers
from xbus.broker.journal.retention.reader_lags import find_behind
from xbus.broker.journal.subscribers import (
    SubscriptionWish,
    list_subscribers,
    make_topics,
    remove_subscribed,
    subscribe,
    unsubscribe,
)
from xbus.broker.journal.topics import claim_topic, count_waiting
from xbus.clock import SystemClock
from xbus.config import BackSettings
from xbus.rpc.bell import Bell

TOPICS = ("shop_orders", "shop_returns")


def set_up(connection: sa.Connection) -> int:
    """Add a client that makes topics; its id."""
    profiles = {"clients": ProfileSpec("clients", frozenset(), new_types="shop_*")}
    emitters = {"client": EmitterSpec("client", "clients")}
    change(connection, BusSpec(profiles=profiles, emitters=emitters, services={"g": ServiceSpec("g", "gateway")}))
    client = next(each.id for each in read_catalog(connection).emitters.values() if each.login == "client")
    make_topics(connection, client, TOPICS, NOW)
    return client


def change_limit(connection: sa.Connection, emitter_id: int, max_lag: timedelta, at: datetime) -> None:
    """Have an operator limit the lag of the client's subscription."""
    own = replace(read_stored(connection).in_use.subscriptions["client"], max_lag=max_lag)
    apply(connection, make_plan(read_stored(connection), BusSpec(subscriptions={"client": own})), at)


class Client:
    """A client of Routemaster that subscribes, and the desk that hands its batches out."""

    def __init__(self, journal: Journal, emitter_id: int) -> None:
        self.journal = journal
        self.emitter_id = emitter_id
        self.program = ReadingProgram(uuid.uuid4(), None, "gateway_1", "key")
        self.log = LogReader(journal, cast(Bell, None))
        self.desk: ReaderDesk | None = None
        self.done: Settlement | None = None

    async def do(self, errand: Callable[..., object], *arguments: object) -> None:
        await self.journal.run(errand, self.emitter_id, *arguments, NOW)

    async def subscribe(self, *topics: str, max_lag: int | None = None) -> None:
        wish = SubscriptionWish(topics, "https://app.example/events", "key", 0, 100, max_lag=max_lag)
        await self.do(subscribe, wish)

    async def put(self, *topics: str) -> None:
        scribe = await Scribe.of(self.journal)
        for topic in topics:
            await scribe.put([b"x"], type_name=topic)

    async def come(self, *, settles: bool = True) -> list[tuple[int, str]]:
        """Read a batch: the position and the topic of each of its events."""
        await self.log.refresh()
        (entry,) = await self.journal.read(read_readers)
        if self.desk is None:
            failing = FailingBatches(BackSettings(), SystemClock(), Random(1))
            self.desk = ReaderDesk(entry, self.journal, LogSlices(self.log), SystemClock(), failing)
        await self.desk.follow(entry)
        answer = await self.desk.read(self.program, BatchCall(0.0, None, None, None), lambda: False)
        batch: Any = answer["batch"]
        if batch is None:
            return []
        if settles:
            await self.desk.settle(self.program, Settlement(batch["range"], batch["counter"], Place(*batch["to"])))
        return [(event["position"], event["type"]) for event in batch["events"]]

    async def beyond(self) -> list[tuple[int, int]]:
        """Up to where the client may do without events, and how many envelopes that are."""
        return [(each.upto, each.passes) for each in await self.journal.read(find_behind, NOW + timedelta(days=1))]

    async def queued(self) -> Sequence[tuple[list[str], int]]:
        found = await self.journal.read(list_subscribers, self.emitter_id, NOW)
        return [(sorted(each.spec.event_types), each.queued) for each in found]


@pytest.fixture
async def client(journal: Journal) -> Client:
    return Client(journal, await journal.run(set_up))


async def test_what_is_queued_of_a_topic_that_ends_comes_all_the_same(client: Client) -> None:
    await client.subscribe(*TOPICS)
    await client.put("shop_orders", "shop_returns", "shop_orders")
    await client.do(unsubscribe, "shop_returns")
    await client.do(claim_topic, "shop_orders")
    await client.do(remove_subscribed, "shop_orders")
    assert await client.queued() == [([], 3)]
    assert await client.journal.read(find_table_problems) == []
    await client.do(claim_topic, "shop_orders")
    await client.put("shop_orders", "shop_returns")
    assert await client.queued() == [([], 3)]
    expected = [(1, "shop_orders"), (2, "shop_returns"), (3, "shop_orders")]
    assert await client.come(settles=False) == expected
    assert await client.come() == expected, "the batch that is out comes again as it was"
    assert (await client.come(), await client.queued()) == ([], [([], 0)])
    await client.do(unsubscribe, None)
    assert await client.queued() == []


async def test_a_new_topic_begins_when_the_client_subscribes_to_it(client: Client) -> None:
    await client.subscribe("shop_orders")
    await client.put("shop_returns", "shop_returns")
    await client.subscribe(*TOPICS)
    assert await client.queued() == [([*TOPICS], 0)]
    await client.put("shop_returns", "shop_orders")
    assert await client.queued() == [([*TOPICS], 2)]
    assert await client.come() == [(3, "shop_returns"), (4, "shop_orders")]
    await client.subscribe("shop_orders")
    await client.put("shop_returns")
    await client.subscribe(*TOPICS)
    await client.put("shop_returns")
    assert await client.come() == [(6, "shop_returns")]


async def test_the_limit_of_the_lag_counts_what_comes_and_nothing_else(client: Client) -> None:
    await client.subscribe("shop_orders", max_lag=1)
    await client.put("shop_orders", "shop_returns", "shop_returns", "shop_orders")
    await client.subscribe("shop_returns", max_lag=1)
    assert await client.beyond() == [(1, 1)], "events of a topic that was left come, those before a new one do not"
    await client.put("shop_returns", "shop_orders")
    assert await client.beyond() == [(4, 2)]
    await client.do(change_limit, timedelta(hours=1))
    assert await client.beyond() == [(6, 3)]


async def test_who_comes_again_before_the_queue_is_empty_loses_nothing(client: Client) -> None:
    await client.subscribe(*TOPICS)
    await client.put("shop_orders")
    await client.subscribe("shop_returns")
    await client.subscribe(*TOPICS)
    await client.put("shop_orders")
    assert await client.come() == [(1, "shop_orders"), (2, "shop_orders")]


async def test_a_subscriber_without_events_of_its_own_is_not_behind(client: Client) -> None:
    await client.subscribe("shop_returns")
    await client.put("shop_orders", "shop_orders")
    await settle_all(client.journal, 3)
    assert await client.journal.read(count_waiting, 10) == 0
    await client.put("shop_returns")
    assert await client.journal.read(count_waiting, 10) == 1
