"""Our own emitters and recipients with the real broker between them."""

import asyncio
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import PASSWORD, add_bus, add_demo
from tests.support.processes import run
from tests.support.sdk import Keeps, emit, send_numbers
from tests.support.serving import serving
from tests.support.showing import become
from tests.support.waiting import DEADLINE_SECONDS, eventually, wait_until
from xbus.emitter import AsyncEmitter, Emitter, Receipt
from xbus.errors import CallError, Refused
from xbus.recipient import Event, Item, Refusal, Worker
from xbus.rpc.client import Client
from xbus.rpc.codec import pack_items
from xbus.rpc.context import new_context

EXAMPLES = Path(__file__).parents[2] / "examples"


class Halves(Worker):
    """Drops odd numbers, and answers even ones twice: as they are, and as a text."""

    def on_item(self, event: Event, item: Item) -> Iterator[object]:
        if item.value % 2 == 0:
            yield item
            yield str(item.value)


@pytest.mark.usefixtures("each_way")
async def test_items_go_from_emitter_to_worker_to_consumer(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"numbers": {"halves": ["store"], "store": []}})
    daemon = start_daemon(database_url)
    keeps = Keeps()
    async with serving(daemon, "store_1", keeps), serving(daemon, "halves_1", Halves()):
        receipt = await emit(daemon, send_numbers(20_000))
        await eventually(lambda: keeps.committed, "the consumer commits")
    assert (receipt.position, receipt.events, receipt.items) == (1, 1, 20_000)
    assert keeps.committed[receipt.envelope_id] == [
        pair for number in range(0, 20_000, 2) for pair in ((number, number), (number, str(number)))
    ]


@pytest.mark.usefixtures("each_way")
async def test_small_envelopes_of_several_tasks(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"numbers": {"store": []}})
    daemon = start_daemon(database_url)
    keeps = Keeps()
    async with serving(daemon, "store_1", keeps), AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        receipts = await asyncio.gather(*(emitter.put("numbers", range(number)) for number in range(50)))
        await eventually(lambda: len(keeps.committed) == 50, "all are committed")
    assert sorted(receipt.position for receipt in receipts) == list(range(1, 51))
    for number, receipt in enumerate(receipts):
        assert keeps.committed[receipt.envelope_id] == [(n, n) for n in range(number)]


async def test_values_of_many_types_are_sent_once_under_a_key(sqlite_url: str, start_daemon: StartDaemon) -> None:
    """Each program makes them anew, and their bytes are the same."""
    add_bus(sqlite_url, {"orders": {"store": []}})
    daemon = start_daemon(sqlite_url)
    keeps = Keeps()

    def pack_range(value: object) -> object:
        return list(value) if isinstance(value, range) else value

    def order() -> dict[str, object]:
        lines = [{"total": Decimal("12.50"), "id": uuid.UUID(int=number)} for number in range(3)]
        return {"at": datetime(2026, 5, 4, 9, 30, tzinfo=UTC), "lines": lines, "places": range(3)}

    async def put() -> Receipt:
        async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD, pack=pack_range) as emitter:
            return await emitter.put("orders", [order()], key="17")

    async with serving(daemon, "store_1", keeps):
        first, again = await put(), await put()
        await eventually(lambda: keeps.committed, "the consumer commits")
    assert first == again
    lines = [{"total": "12.50", "id": f"00000000-0000-0000-0000-00000000000{number}"} for number in range(3)]
    wanted = {"at": "2026-05-04T09:30:00+00:00", "lines": lines, "places": [0, 1, 2]}
    assert keeps.committed == {first.envelope_id: [(0, wanted)]}


async def test_an_emitter_outlives_a_killed_broker(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"numbers": {"store": []}})
    daemon = start_daemon(database_url)
    keeps = Keeps()

    def work(emitter: Emitter) -> Any:
        with emitter.envelope() as envelope, envelope.event("numbers") as event:
            for number in range(10_000):
                event.send(number)
                if number in (3_333, 7_777):
                    daemon.kill()
                    daemon.start()
        return envelope.receipt

    async with serving(daemon, "store_1", keeps):
        receipt = await emit(daemon, work, batch_items=100, retry_seconds=DEADLINE_SECONDS)
        await eventually(lambda: keeps.committed, "the consumer commits")
    assert receipt.items == 10_000
    assert keeps.committed == {receipt.envelope_id: [(n, n) for n in range(10_000)]}


async def test_a_repeated_batch_gets_its_first_answer(database_url: str, start_daemon: StartDaemon) -> None:
    """As an emitter repeats it that lost its connection, with other batches stored behind it meanwhile."""
    add_bus(database_url, {"numbers": {"store": []}})
    daemon = start_daemon(database_url)
    context = new_context()
    client = Client(context, name="emitter")
    client.connect(daemon.front)
    told: Any = await client.call("xbus.login", "emitter_1", PASSWORD)
    token = told["token"]
    envelope_id, event_id = str(uuid.uuid4()), str(uuid.uuid4())
    await client.call("xbus.start_envelope", token, envelope_id)
    await client.call("xbus.start_event", token, envelope_id, event_id, "numbers", 0)
    batches = [(number * 10, 10, pack_items([b"%d" % number] * 10)) for number in range(5)]
    for _ in range(2):
        for first_index, items, data in batches:
            answer = await client.call("xbus.send_items", token, envelope_id, event_id, first_index, items, data)
            assert answer == first_index + items
    with pytest.raises(Refused) as refused:
        await client.call("xbus.send_items", token, envelope_id, event_id, 10, 10, pack_items([b"other"] * 10))
    assert refused.value.code == "content_differs"
    client.close()
    context.destroy()


@pytest.mark.usefixtures("each_way")
async def test_a_recipient_outlives_a_killed_broker(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"numbers": {"store": []}})
    daemon = start_daemon(database_url)
    keeps = Keeps()
    async with serving(daemon, "store_1", keeps):
        first = await emit(daemon, send_numbers(10))
        await become(database_url, first.envelope_id, store_1="done")
        await asyncio.to_thread(daemon.kill)
        await asyncio.to_thread(daemon.start)
        second = await emit(daemon, send_numbers(10))
        await eventually(lambda: second.envelope_id in keeps.committed, "the second is committed")


@pytest.mark.usefixtures("each_way")
async def test_a_refusal_keeps_all_of_the_envelope_out(database_url: str, start_daemon: StartDaemon) -> None:
    class Picky(Keeps):
        def on_item(self, event: Event, item: Item) -> None:
            if item.value == 7:
                raise Refusal("seven is not taken")
            super().on_item(event, item)

    add_bus(database_url, {"numbers": {"store": []}})
    daemon = start_daemon(database_url)
    picky = Picky()
    async with serving(daemon, "store_1", picky):
        refused = await emit(daemon, send_numbers(10))
        taken = await emit(daemon, send_numbers(5))
        await eventually(lambda: taken.envelope_id in picky.committed, "the next is committed")
        await eventually(lambda: refused.envelope_id in picky.rolled_back, "the refused one is rolled back")
    assert refused.envelope_id not in picky.committed


async def test_an_exception_in_the_emitter_leaves_nothing(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"numbers": {"store": []}})
    daemon = start_daemon(database_url)
    keeps = Keeps()

    def work(emitter: Emitter) -> Any:
        with pytest.raises(KeyError), emitter.envelope() as envelope, envelope.event("numbers") as event:
            event.send(1)
            raise KeyError
        return emitter.put("numbers", [2])

    async with serving(daemon, "store_1", keeps):
        receipt = await emit(daemon, work)
        await eventually(lambda: keeps.committed, "the consumer commits")
    assert receipt.position == 1
    assert keeps.committed == {receipt.envelope_id: [(0, 2)]}


async def test_what_the_broker_refuses_comes_out_with_its_code(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"numbers": {"store": []}, "forbidden_numbers": {"store": []}})
    daemon = start_daemon(sqlite_url, options={"front": {"max_item_bytes": 100, "max_envelope_items": 10}})

    def code_of(type_name: str, items: list[object]) -> Callable[[Emitter], str]:
        def work(emitter: Emitter) -> str:
            with pytest.raises(Refused) as refused:
                emitter.put(type_name, items)
            with pytest.raises(Refused) as again:
                with emitter.envelope() as envelope, envelope.event(type_name) as event:
                    for item in items:
                        event.send(item)
            assert again.value.code == refused.value.code
            assert refused.value.next_step
            return refused.value.code

        return work

    assert await emit(daemon, code_of("no_such_type", [])) == "unknown_type"
    assert await emit(daemon, code_of("forbidden_numbers", [])) == "type_not_allowed"
    assert await emit(daemon, code_of("numbers", [b"x" * 101])) == "item_too_large"
    assert await emit(daemon, code_of("numbers", [1] * 11)) == "envelope_too_large"


class Prices(Keeps):
    """Replies the prices of articles; some of them in ways of their own."""

    immediate_reply = ("price_wanted",)
    prices: ClassVar[dict[str, Any]] = {"pen": 3, "ink": {"litre": 7.5}, "odd": object()}

    def on_item(self, event: Event, item: Item) -> None:
        super().on_item(event, item)
        if item.value == "broken":
            raise KeyError(item.value)
        if item.value not in self.prices:
            raise Refusal(f"there is no {item.value}")

    def on_event_end(self, event: Event) -> Any:
        return [self.prices[value] for _, value in event.envelope.state["items"]]


@pytest.mark.usefixtures("each_way")
async def test_an_emitter_asks_and_a_consumer_replies(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"price_wanted": {"prices": []}, "note": {"prices": []}}, immediate=("price_wanted",))
    daemon = start_daemon(sqlite_url, {"front": {"immediate_reply_timeout": DEADLINE_SECONDS}})
    prices = Prices()
    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        async with serving(daemon, "prices_1", prices):
            assert await emitter.ask("price_wanted", "pen", "ink") == [3, {"litre": 7.5}]
            assert await emitter.ask("price_wanted") == []
            assert await emit(daemon, lambda blocking: blocking.ask("price_wanted", "pen")) == [3]
            with pytest.raises(Refused) as unanswered:
                await emitter.ask("note", "pencil")
            assert unanswered.value.code == "no_reply"
            await eventually(lambda: len(prices.committed) == 3, "all that was answered is committed")
            assert [[value for _, value in items] for items in prices.committed.values()] == [
                ["pen", "ink"],
                [],
                ["pen"],
            ]

            assert await why_no_reply(emitter, "paper") == "reply_refused: there is no paper"
            assert (await why_no_reply(emitter, "odd")).endswith("of type list, can't be packed by msgpack")
            assert await why_no_reply(emitter, "broken") == "reply_failed: KeyError: 'broken'"
            await eventually(lambda: len(set(prices.rolled_back)) == 3, "what had no reply is rolled back")
            with pytest.raises(Refused) as refused:
                await emitter.put("price_wanted", ["pen"])
            assert refused.value.code == "reply_wanted"
            assert await emitter.ask("price_wanted", "pen") == [3]
            await eventually(lambda: len(prices.committed) == 4, "what was asked last is committed")


async def test_an_emitter_that_asks_nobody_is_told_so(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"price_wanted": {"prices": []}}, immediate=("price_wanted",))
    daemon = start_daemon(sqlite_url, {"front": {"immediate_reply_timeout": 0.5}})
    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        assert (await why_no_reply(emitter, "pen")).startswith("reply_timed_out: ")


async def why_no_reply(emitter: AsyncEmitter, item: str) -> str:
    with pytest.raises(CallError) as told:
        await emitter.ask("price_wanted", item)
    return f"{told.value.code}: {told.value.cause}"


def test_the_examples_run(sqlite_url: str, start_daemon: StartDaemon, start_process: StartProcess) -> None:
    add_demo(sqlite_url)
    daemon = start_daemon(sqlite_url)
    consumer = start_process(sys.executable, EXAMPLES / "consumer.py", daemon.back)
    worker = start_process(sys.executable, EXAMPLES / "worker.py", daemon.back)
    emitted = run(sys.executable, EXAMPLES / "emitter.py", daemon.front)
    assert (emitted.returncode, emitted.stdout) == (0, "sealed at position 1\n"), emitted.stderr
    wait_until(lambda: len(consumer.text.splitlines()) == 6, "the consumer prints all names")
    assert sorted(consumer.text.split("\n")[:-1]) == sorted(
        f"client: {name}" for name in ("Ada", "ADA", "Grace", "GRACE", "Edsger", "EDSGER")
    )
    assert (worker.stop(), consumer.stop()) == (0, 0)
