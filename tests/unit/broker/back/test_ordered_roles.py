"""Roles that want order, in a whole back: whatever fails, leaves, goes down or is resumed, a key keeps its order."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.back import Broker, running
from tests.support.journal import memory_engine
from tests.support.recipients import BROKEN, LOST, REFUSED
from xbus import model
from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import FollowOrder, Write
from xbus.errors import JournalUnavailable
from xbus.states import DeliveryState

SEVERAL = Abilities(batches=True, envelopes=4)
AT_ONCE = RetryPolicy(attempts=2, first_delay=0)
TAKEN: list[Any] = [True, None, []]

Answers = Callable[[bytes], Any]
"""What the recipient answers to the end of an envelope with this item."""


async def change(journal: Journal, *statements: sa.Update | sa.Delete) -> None:
    """What somebody else does in the database; in memory it has one connection, which reads share with writes."""

    def carry_out(connection: sa.Connection) -> None:
        for statement in statements:
            connection.execute(statement)

    await journal.read(carry_out)


async def set_ordered(journal: Journal, ordered: bool) -> None:
    await change(
        journal,
        sa.update(model.role).where(model.role.c.login == "store_1").values(ordered=ordered),
        sa.update(model.configuration).values(version=model.configuration.c.version + 1),
    )


@pytest.fixture
async def journal(journal: Journal) -> Journal:
    """One of a bus whose first store wants order."""
    await set_ordered(journal, True)
    return journal


class Store:
    """A consumer that answers as it is told, and keeps what it has taken, in order."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.refused: set[str] = set()
        self.answer: Answers = lambda item: REFUSED if item.decode() in self.refused else TAKEN

    def take_event(self, envelope_id: str, event_id: str, type_name: str, batches: Any, commit: bool) -> Any:
        (_, _, data, _), *_ = batches
        item = bytes(data[2:])
        answer = self.answer(item)
        if answer is TAKEN:
            self.taken.append(item.decode())
        return answer

    async def register(self, broker: Broker) -> None:
        await broker.register("store_1", SEVERAL, xbus_take_event=self.take_event)

    def of(self, key: str) -> list[str]:
        """What it has taken of one key, each at its first time."""
        return [item for item in dict.fromkeys(self.taken) if item[0] == key]


async def put(broker: Broker, *items: str) -> None:
    """An envelope with each of these items, whose ordering key is its first letter; none for a dash."""
    for item in items:
        await broker.put(item.encode(), ordering_key=None if item[0] == "-" else item[0])


async def states(journal: Journal) -> list[tuple[str | None, str]]:
    """The keys and states of all rows, in position order."""

    def read(connection: sa.Connection) -> list[tuple[str | None, str]]:
        delivery = model.delivery.c
        found = connection.execute(sa.select(delivery.ordering_key, delivery.state).order_by(delivery.position))
        return [(key, state) for key, state in found]

    return await journal.read(read)


async def until_states(journal: Journal, *expected: tuple[str | None, str]) -> None:
    while await states(journal) != list(expected):
        await asyncio.sleep(0)


PARKED = model.delivery.c.state == DeliveryState.PARKED


async def resume(broker: Broker) -> None:
    """What an operator does to all that is parked."""
    await change(broker.journal, sa.update(model.delivery).where(PARKED).values(state=DeliveryState.RETRY, attempts=0))
    broker.pass_time(10)


async def drop(broker: Broker) -> None:
    await change(broker.journal, sa.delete(model.delivery).where(PARKED))
    broker.pass_time(10)


async def test_a_key_that_is_parked_holds_only_itself_until_it_is_resumed(journal: Journal) -> None:
    store = Store()
    store.refused = {"a1"}
    async with running(journal) as broker:
        await store.register(broker)
        await put(broker, "a1", "b1", "a2", "-1", "b2", "a3")
        await until_states(journal, ("a", "parked"), ("a", "held"), ("a", "held"))
        await broker.until(lambda: store.taken == ["b1", "-1", "b2"])
        store.refused.clear()
        await resume(broker)
        await until_states(journal)
        await put(broker, "a4")
        await broker.until(lambda: store.of("a") == ["a1", "a2", "a3", "a4"])
    assert await broker.cursor() == 7


async def test_one_that_is_dropped_lets_the_next_one_go(journal: Journal) -> None:
    store = Store()
    store.refused = {"a1", "a3"}
    async with running(journal) as broker:
        await store.register(broker)
        await put(broker, "a1", "a2", "a3", "a4")
        await until_states(journal, ("a", "parked"), *[("a", "held")] * 3)
        await drop(broker)
        await until_states(journal, ("a", "parked"), ("a", "held"))
        await drop(broker)
        await until_states(journal)
    assert store.taken == ["a2", "a4"]


async def test_one_envelope_at_a_time_whatever_it_announces(journal: Journal) -> None:
    store = Store()
    pending = asyncio.get_running_loop().create_future()
    store.answer = lambda item: pending
    async with running(journal) as broker:
        await store.register(broker)
        await put(broker, "a1", "b1")
        await broker.until(lambda: broker.items("store_1"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert broker.items("store_1") == [b"a1"]
        pending.set_result(TAKEN)
        await broker.until(lambda: broker.items("store_1") == [b"a1", b"b1"])


async def test_what_may_go_well_later_is_tried_again_before_later_ones_of_its_key(journal: Journal) -> None:
    store = Store()
    store.answer = lambda item: BROKEN if item == b"-1" else TAKEN
    async with running(journal, retry=RetryPolicy(attempts=9, first_delay=60, jitter=0)) as broker:
        await store.register(broker)
        await put(broker, "-1", "-2", "b1")
        await until_states(journal, ("", "retry"), ("", "held"))
        await broker.until(lambda: store.taken == ["b1"])
        store.answer = lambda item: TAKEN
        broker.pass_time(60)
        await until_states(journal)
    assert store.taken == ["b1", "-1", "-2"]


async def test_what_waits_for_a_worker_holds_its_key(journal: Journal) -> None:
    store = Store()
    async with running(journal) as broker:
        await store.register(broker)
        await broker.put(b"a1", type_name="flights", ordering_key="a")
        await put(broker, "a2", "b1")
        await until_states(journal, ("a", "waiting"), ("a", "held"))
        await broker.register("names_1")
        await until_states(journal)
    assert broker.items("store_1") == [b"b1", b"a1", b"a2"]


async def test_what_is_held_survives_a_crash(journal: Journal) -> None:
    store = Store()
    store.refused = {"a1"}
    async with running(journal, clean=False) as broker:
        await store.register(broker)
        await put(broker, "a1", "b1", "a2", "a3")
        await until_states(journal, ("a", "parked"), ("a", "held"), ("a", "held"))
        store.answer = lambda item: asyncio.get_running_loop().create_future()
        await put(broker, "b2", "b3", "a4", "c1")
        await broker.until(lambda: b"b2" in broker.items("store_1"))
    store.answer = lambda item: REFUSED if item == b"b2" else TAKEN
    async with running(journal) as broker:
        await store.register(broker)
        parked_a = [("a", "parked"), *[("a", "held")] * 2]
        await until_states(journal, *parked_a, ("b", "parked"), ("b", "held"), ("a", "held"))
        assert store.of("c") == ["c1"]
        store.answer = lambda item: TAKEN
        await resume(broker)
        await until_states(journal)
    assert store.of("a") == ["a1", "a2", "a3", "a4"]
    assert store.of("b") == ["b1", "b2", "b3"]


async def test_a_recipient_that_is_replaced_changes_no_order(journal: Journal) -> None:
    store = Store()
    pending = asyncio.get_running_loop().create_future()
    store.answer = lambda item: pending
    async with running(journal, retry=AT_ONCE) as broker:
        await store.register(broker)
        await put(broker, "a1", "a2", "b1")
        await broker.until(lambda: broker.items("store_1") == [b"a1"])
        store.answer = lambda item: TAKEN
        await store.register(broker)
        for _ in range(100):
            await asyncio.sleep(0)
        assert store.taken == []
        pending.set_exception(LOST)
        await broker.until(lambda: len(store.taken) == 3)
    assert store.of("a") == ["a1", "a2"]


async def test_many_that_are_held_are_read_by_the_page(journal: Journal) -> None:
    store = Store()
    store.refused = {"a000"}
    expected = [f"a{number:03}" for number in range(130)]
    async with running(journal) as broker:
        await store.register(broker)
        await put(broker, *expected)
        while len(await states(journal)) < 130:
            await asyncio.sleep(0)
        store.refused.clear()
        await resume(broker)
        await until_states(journal)
    assert store.taken == expected


async def test_what_was_withdrawn_while_it_was_held_is_read_anew(journal: Journal) -> None:
    store = Store()
    store.refused = {"a1"}
    async with running(journal) as broker:
        await store.register(broker)
        await put(broker, "a1", "a2", "a3")
        await until_states(journal, ("a", "parked"), ("a", "held"), ("a", "held"))
        broker.back._assembly._roles[broker.scribe.role_id()].in_flight.outdate(2)
        await drop(broker)
        await until_states(journal)
    assert store.taken == ["a2", "a3"]


async def test_what_was_held_and_handed_over_at_a_crash_is_forgotten_first(journal: Journal) -> None:
    store = Store()
    store.refused = {"a1"}
    async with running(journal, clean=False) as broker:
        await store.register(broker)
        await put(broker, "a1", "a2", "a3")
        await until_states(journal, ("a", "parked"), ("a", "held"), ("a", "held"))
        store.answer = lambda item: TAKEN if item == b"a1" else asyncio.get_running_loop().create_future()
        await resume(broker)
        await broker.until(lambda: b"a2" in broker.items("store_1"))
        await until_states(journal, ("a", "held"), ("a", "held"))
    store.answer = lambda item: TAKEN
    async with running(journal) as broker:
        await store.register(broker)
        await until_states(journal)
        assert broker.script.verbs("store_1")[-4:] == ["stop_envelope", "xbus.take_event"] * 2
    assert store.taken == ["a1", "a2", "a3"]


async def test_a_role_that_comes_to_want_order_keeps_what_it_has(journal: Journal) -> None:
    await set_ordered(journal, False)
    store = Store()
    store.refused = {"a1", "a2"}
    async with running(journal) as broker:
        await store.register(broker)
        await put(broker, "a1", "a2", "b1")
        await until_states(journal, (None, "parked"), (None, "parked"))
    await set_ordered(journal, True)
    async with running(journal) as broker:
        await store.register(broker)
        await put(broker, "a3", "b2")
        await until_states(journal, ("a", "parked"), ("a", "parked"), ("a", "held"))
        store.refused.clear()
        await resume(broker)
        await until_states(journal)
    assert store.taken == ["b1", "b2", "a1", "a2", "a3"]


async def test_an_outage_while_a_role_comes_to_want_order_loses_no_key(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_ordered(journal, False)
    store = Store()
    store.refused = {"a1"}
    async with running(journal) as broker:
        await store.register(broker)
        await put(broker, "a1")
        await until_states(journal, (None, "parked"))
        await set_ordered(journal, True)
        outages = [JournalUnavailable("the database is away", "")]
        write = journal.write

        def write_later(what: Write[None], *, promises: bool = True) -> "asyncio.Future[None]":
            if isinstance(what, FollowOrder) and outages:
                raise outages.pop()
            return write(what, promises=promises)

        monkeypatch.setattr(journal, "write", write_later)
        await broker.refresh_configuration()
        await broker.until(lambda: broker.back.registry.get(broker.scribe.role_id()) is None)
        await until_states(journal, ("a", "parked"))
        await store.register(broker)
        await put(broker, "a2", "b1")
        await until_states(journal, ("a", "parked"), ("a", "held"))
        await broker.until(lambda: store.taken == ["b1"])


async def test_a_role_that_wants_order_no_longer_is_not_held_up(journal: Journal) -> None:
    store = Store()
    store.refused = {"a1"}
    async with running(journal) as broker:
        await store.register(broker)
        await put(broker, "a1", "a2")
        await until_states(journal, ("a", "parked"), ("a", "held"))
        await set_ordered(journal, False)
        await broker.refresh_configuration()
        await broker.until(lambda: broker.back.registry.get(broker.scribe.role_id()) is None)
        await store.register(broker)
        await until_states(journal, (None, "parked"))
    assert store.taken == ["a2"]


async def test_a_row_in_flight_when_its_role_comes_to_want_order_comes_again(journal: Journal) -> None:
    await set_ordered(journal, False)
    store = Store()
    async with running(journal, retry=RetryPolicy(attempts=3, first_delay=0)) as broker:
        ends: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answers = [ends, BROKEN]
        store.answer = lambda item: answers.pop()
        await store.register(broker)
        await put(broker, "a1")
        broker.pass_time(1)
        await broker.until(lambda: not answers)
        await set_ordered(journal, True)
        await broker.refresh_configuration()
        await broker.until(lambda: broker.back.registry.get(broker.scribe.role_id()) is None)
        ends.set_exception(LOST)
        store.answer = lambda item: TAKEN
        await store.register(broker)
        await until_states(journal)
    assert store.taken == ["a1"]


# -- the rule, whatever happens --------------------------------------------------------------------------------------

KEYS = st.sampled_from("ab-")
ENDS = st.sampled_from([TAKEN, TAKEN, TAKEN, BROKEN, LOST, REFUSED])
STEPS = st.one_of(KEYS, KEYS, KEYS, st.sampled_from(["register again", "leave", "crash", "stop", "resume", "pause"]))


@settings(max_examples=8)
@given(st.lists(STEPS, min_size=3, max_size=25), st.lists(ENDS, max_size=25))
def test_each_key_is_taken_in_order_whatever_happens(steps: list[str], ends: list[Any]) -> None:
    asyncio.run(carry_out(steps, ends))


async def carry_out(steps: list[str], ends: list[Any]) -> None:
    store = Store()
    left = list(ends)
    store.answer = lambda item: left.pop() if left else TAKEN
    sent: list[str] = []
    async with Journal(memory_engine(), "broker") as journal:
        await set_ordered(journal, True)
        while steps:
            async with running(journal, retry=AT_ONCE, clean=steps[0] != "crash") as broker:
                await store.register(broker)
                steps = await until_it_goes_down(steps, broker, store, sent)
        left.clear()
        async with running(journal, retry=AT_ONCE) as broker:
            await store.register(broker)
            while set(store.taken) != set(sent):
                await resume(broker)
                await asyncio.sleep(0)
    for key in "ab-":
        assert store.of(key) == [item for item in sent if item[0] == key]


async def until_it_goes_down(steps: list[str], broker: Broker, store: Store, sent: list[str]) -> list[str]:
    for number, step in enumerate(steps):
        match step:
            case "crash" | "stop":
                return steps[number + 1 :]
            case "register again":
                await store.register(broker)
            case "leave":
                if broker.back.is_registered(broker.scribe.role_id()):
                    await broker.leave("store_1")
            case "resume":
                await resume(broker)
            case "pause":
                for _ in range(50):
                    await asyncio.sleep(0)
            case key:
                sent.append(f"{key}{len(sent)}")
                await put(broker, sent[-1])
    return []
