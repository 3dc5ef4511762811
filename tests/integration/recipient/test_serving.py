"""Recipients against a broker double over real sockets: what authors see, and what the broker is answered."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from typing import Any

import pytest

from tests.integration.recipient.broker_double import SECONDS, BrokerDouble
from tests.integration.recipient.conftest import Serve
from tests.integration.recipient.notes import Notes
from tests.support.waiting import eventually
from xbus.errors import Failed, Refused
from xbus.recipient import Batch, Consumer, Envelope, Event, Item, Recipient, Refusal, Worker
from xbus.rpc.codec import pack, unpack_items


async def test_a_consumer_sees_an_envelope_in_order(broker: BrokerDouble, serve_recipient: Serve) -> None:
    notes = Notes()
    await serve_recipient(notes)
    answers: Any = await asyncio.gather(
        broker.start_event("E", "e"),
        broker.send("E", "e", 0, b"a", b"b"),
        broker.send("E", "e", 7, b"c", indices=[[7, 8]]),
        broker.end_event("E", "e"),
        broker.call("end_envelope", "E"),
    )
    assert list(answers) == [[True, None], [True, None], [True, None], [True, "a reply", []], [True, None]]
    assert notes.seen == [
        ("start", "E", "e", "test_event"),
        (0, b"a"),
        (1, b"b"),
        (7, b"c"),
        ("end", "e"),
        ("commit", "E"),
    ]


async def test_a_small_event_comes_in_one_call(broker: BrokerDouble, serve_recipient: Serve) -> None:
    notes = Notes()
    await serve_recipient(notes)
    batches = [[0, 1, b"\xc4\x01a", None], [1, 1, b"\xc4\x01b", [[1, 2]]]]
    assert await broker.call("xbus.take_event", "E", "e", "test_event", batches, True) == [True, "a reply", []]
    assert notes.seen[1:] == [(0, b"a"), (1, b"b"), ("end", "e"), ("commit", "E")]
    with pytest.raises(Refused) as refused:
        await broker.call("xbus.take_event", "F", "f", "test_event", [["rubbish"]], True)
    assert refused.value.code == "bad_items"


async def test_a_worker_answers_a_small_event_at_once(broker: BrokerDouble, serve_recipient: Serve) -> None:
    await serve_recipient(Splitting)
    batches = [[0, 1, b"\xc4\x01\x02", None]]
    ok, reply, out = await broker.call("xbus.take_event", "E", "e", "test_event", batches, False)
    assert (ok, reply) == (True, None)
    made = [(pack([0, 0]), [0]), (pack([0, 1]), [0]), (pack("sum"), []), (pack("of some"), [0, 2])]
    assert decoded(out) == [(0, [item for item, _ in made], [indices for _, indices in made])]


async def test_a_consumer_under_a_broker_of_single_items(broker: BrokerDouble, serve_recipient: Serve) -> None:
    notes = Notes()
    await serve_recipient(notes)
    assert await broker.start_event("E", "e") == [True, None]
    assert await broker.call("send_item", "E", "e", [3], b"x") == [True, None]
    assert await broker.call("end_event", "E", "e") == [True, "a reply"]
    assert await broker.call("end_envelope", "E") == [True, None]
    assert (3, b"x") in notes.seen
    assert "ready" not in broker.calls


async def test_what_it_says_of_itself(broker: BrokerDouble, serve_recipient: Serve) -> None:
    class Replying(Notes):
        name = "clients"
        version = 2.5
        envelopes = 3
        immediate_reply = ("question",)
        clearing = "postgresql://reader@host/clients"

    await serve_recipient(Replying)
    metadata = await broker.call("get_metadata")
    assert (metadata["name"], metadata["version"], metadata["xbus"]) == (
        "clients",
        2.5,
        {
            "batches": 1,
            "envelopes": 3,
            "heartbeats": True,
            "kind": "consumer",
            "bundles": True,
            "prepares": 3,
            "prepares_next": True,
            "notes": True,
            "headers": True,
        },
    )
    assert set(metadata) >= {"api_version", "host", "start_date", "local_time"}
    assert await broker.call("has_immediate_reply") == [True, ["question"]]
    assert await broker.call("has_clearing") == [True, "postgresql://reader@host/clients"]
    assert await broker.call("ping", "text") == "text"


@pytest.mark.parametrize("recipient", [Consumer, Worker])
async def test_what_it_does_not_offer(broker: BrokerDouble, serve_recipient: Serve, recipient: type[Recipient]) -> None:
    await serve_recipient(recipient)
    assert await broker.call("has_immediate_reply") == [False, []]
    assert await broker.call("has_clearing") == [False, None]


async def test_what_an_event_without_immediate_reply_ends_with_is_not_sent(
    broker: BrokerDouble, serve_recipient: Serve
) -> None:
    await serve_recipient(Notes)
    await broker.start_event("E", "e", "another_event")
    assert await broker.end_event("E", "e") == [True, None, []]


@pytest.mark.parametrize("verb", ["xbus.end_event", "end_event"])
async def test_a_reply_that_msgpack_can_not_write_refuses_the_event(
    broker: BrokerDouble, serve_recipient: Serve, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    class Odd(Notes):
        def on_event_end(self, event: Event) -> Any:
            return {"price": Decimal(1)}

    refused = [False, [[[], "the consumer's reply, of type dict, can't be packed by msgpack"]]]
    odd = Odd()
    await serve_recipient(odd)
    await broker.start_event("E", "e")
    assert await broker.call(verb, "E", "e") == refused
    assert "on_event_end returned a reply that msgpack can't pack" in caplog.text
    assert await broker.call("xbus.take_event", "F", "f", "test_event", [], True) == refused
    assert ("commit", "F") not in odd.seen


class Splitting(Worker):
    """0 to n items out for one in: as many as the item says."""

    def on_item(self, event: Event, item: Item) -> Iterator[object]:
        for number in range(item.value):
            yield [item.index, number]

    def on_event_end(self, event: Event) -> Any:
        return ["sum", Item.of("of some", indices=[0, 2])]


def decoded(batches: list[Any]) -> list[tuple[int, list[bytes], Any]]:
    return [(first, unpack_items(data, items), indices) for first, items, data, indices in batches]


async def test_a_worker_answers_items_with_the_indices_of_their_source(
    broker: BrokerDouble, serve_recipient: Serve
) -> None:
    await serve_recipient(Splitting)
    await broker.start_event("E", "e")
    ok, batches = await broker.send("E", "e", 5, pack(2), pack(0), pack(1))
    assert ok
    assert decoded(batches) == [(5, [pack([5, 0]), pack([5, 1]), pack([7, 0])], [[5], [5], [7]])]
    ok, batches = await broker.send("E", "e", 8, pack(1), pack(1))
    assert decoded(batches) == [(8, [pack([8, 0]), pack([9, 0])], None)]
    ok, reply, batches = await broker.end_event("E", "e")
    assert (ok, reply) == (True, None)
    assert decoded(batches) == [(0, [pack("sum"), pack("of some")], [[], [0, 2]])]


async def test_answers_keep_to_the_largest_batch(broker: BrokerDouble, serve_recipient: Serve) -> None:
    class Swelling(Worker):
        def on_item(self, event: Event, item: Item) -> bytes:
            return item.data * 400

    await serve_recipient(Swelling)
    await broker.start_event("E", "e")
    _, batches = await broker.send("E", "e", 0, b"a", b"b", b"c")
    assert [(first, items, indices) for first, items, _, indices in batches] == [(0, 2, None), (2, 1, None)]


async def test_a_worker_under_a_broker_of_single_items(broker: BrokerDouble, serve_recipient: Serve) -> None:
    class Doubling(Worker):
        def on_item(self, event: Event, item: Item) -> list[bytes]:
            return [item.data, item.data]

    await serve_recipient(Doubling)
    await broker.start_event("E", "e")
    assert await broker.call("send_item", "E", "e", [4], b"x") == [True, [[[4], b"x"], [[4], b"x"]]]
    assert await broker.call("end_event", "E", "e") == [True, None]
    await eventually(lambda: "ready" in broker.calls, "the worker says that it is ready again")


async def test_a_refusal_names_its_items_and_ends_the_envelope_here(
    broker: BrokerDouble, serve_recipient: Serve
) -> None:
    class Picky(Notes):
        def on_item(self, event: Event, item: Item) -> None:
            super().on_item(event, item)
            if item.data == b"bad":
                raise Refusal("no such client")

    picky = Picky()
    await serve_recipient(picky)
    answers: Any = await asyncio.gather(
        broker.start_event("E", "e"),
        broker.send("E", "e", 0, b"good", b"bad", b"unseen"),
        broker.send("E", "e", 3, b"unseen"),
        broker.end_event("E", "e"),
        broker.call("end_envelope", "E"),
    )
    refused = [False, [[[1], "no such client"]]]
    assert answers == [[True, None], refused, refused, refused, refused]
    assert await broker.call("stop_envelope", "E") is True
    assert picky.seen[1:] == [(0, b"good"), (1, b"bad"), ("rollback", "E")]


async def test_a_refusal_may_name_other_items(broker: BrokerDouble, serve_recipient: Serve) -> None:
    class Late(Consumer):
        def on_event_end(self, event: Event) -> None:
            raise Refusal("the sum is wrong", indices=[4, 2])

    await serve_recipient(Late)
    await broker.start_event("E", "e")
    assert await broker.end_event("E", "e") == [False, [[[4, 2], "the sum is wrong"]]]


async def test_an_item_that_is_not_msgpack_is_refused(broker: BrokerDouble, serve_recipient: Serve) -> None:
    await serve_recipient(Splitting)
    await broker.start_event("E", "e")
    ok, errors = await broker.send("E", "e", 0, pack(1), b"\xc1")
    assert (ok, errors[0][0]) == (False, [1])


async def test_an_exception_is_told_as_transient_and_logged(
    broker: BrokerDouble, serve_recipient: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Consumer):
        def on_batch(self, event: Event, batch: Batch) -> None:
            raise sqlite3.OperationalError("database is locked")

    await serve_recipient(Broken)
    await broker.start_event("E", "e")
    for call in (broker.send("E", "e", 0, b"x"), broker.send("E", "e", 1, b"y"), broker.call("end_envelope", "E")):
        with pytest.raises(Failed, match="OperationalError: database is locked") as failed:
            await call
        assert failed.value.code == "recipient_failed"
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info
    assert await broker.call("stop_envelope", "E") is True
    assert await broker.start_event("E", "e") == [True, None]


async def test_a_commit_that_fails_can_be_rolled_back(broker: BrokerDouble, serve_recipient: Serve) -> None:
    class Full(Notes):
        def commit(self, envelope: Envelope) -> None:
            raise OSError("disk full")

    full = Full()
    await serve_recipient(full)
    await broker.start_event("E", "e")
    with pytest.raises(Failed, match="disk full"):
        await broker.call("end_envelope", "E")
    assert await broker.call("stop_envelope", "E") is True
    assert full.seen[-1] == ("rollback", "E")


async def test_a_rollback_that_fails_is_told(broker: BrokerDouble, serve_recipient: Serve) -> None:
    class Stuck(Consumer):
        def rollback(self, envelope: Envelope) -> None:
            if envelope.id == "E":
                raise OSError("stuck")

    await serve_recipient(Stuck)
    with pytest.raises(Failed, match="stuck"):
        await broker.call("stop_envelope", "E")


async def test_unknown_envelopes_are_rolled_back_too(broker: BrokerDouble, serve_recipient: Serve) -> None:
    notes = Notes()
    await serve_recipient(notes)
    assert await broker.call("stop_envelope", "unknown") is True
    assert notes.seen == [("rollback", "unknown")]


async def test_calls_out_of_order_are_refused(broker: BrokerDouble, serve_recipient: Serve) -> None:
    await serve_recipient(Notes())
    with pytest.raises(Refused) as refused:
        await broker.send("E", "e", 0, b"x")
    assert refused.value.code == "envelope_unknown"
    await broker.start_event("E", "e")
    with pytest.raises(Refused) as refused:
        await broker.send("E", "other", 0, b"x")
    assert refused.value.code == "event_unknown"
    with pytest.raises(Refused) as refused:
        await broker.start_event("E", "e")
    assert refused.value.code == "event_open"
    for indices in ([[0], [1]], [0], [["0"]]):
        with pytest.raises(Refused) as refused:
            await broker.send("E", "e", 0, b"x", indices=indices)  # type: ignore[arg-type]
        assert refused.value.code == "bad_items"
    with pytest.raises(Refused) as refused:
        await broker.call("xbus.send_items", "E", "e", 0, 2, b"\xc4\x01x", None)
    assert refused.value.code == "bad_items"


async def test_pings_are_answered_while_the_author_works(broker: BrokerDouble, serve_recipient: Serve) -> None:
    go_on = threading.Event()

    class Slow(Notes):
        def on_item(self, event: Event, item: Item) -> None:
            assert go_on.wait(SECONDS)

    await serve_recipient(Slow())
    await broker.start_event("E", "e")
    sent = broker.send("E", "e", 0, b"x")
    assert await broker.call("ping", "alive?") == "alive?"
    assert not sent.done()
    go_on.set()
    assert await sent == [True, None]


async def test_a_stop_lets_the_author_skip_what_is_in_line(broker: BrokerDouble, serve_recipient: Serve) -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Notes):
        def on_item(self, event: Event, item: Item) -> None:
            entered.set()
            assert go_on.wait(SECONDS)
            super().on_item(event, item)

    slow = Slow()
    await serve_recipient(slow)
    await broker.start_event("E", "e")
    sent = [broker.send("E", "e", number, b"x") for number in range(3)]
    await eventually(entered.is_set, "the author works on the first of them")
    stopped = broker.call("stop_envelope", "E")
    again = broker.start_event("E", "e")
    await broker.call("ping", "all of these have arrived")
    go_on.set()
    assert await sent[0] == [True, None]
    for skipped in sent[1:]:
        with pytest.raises(Failed, match="stopped"):
            await skipped
    assert await stopped is True
    assert await again == [True, None]
    assert slow.seen[1:] == [(0, b"x"), ("rollback", "E"), ("start", "E", "e", "test_event")]


async def test_methods_may_be_asynchronous(broker: BrokerDouble, serve_recipient: Serve) -> None:
    loop = asyncio.get_running_loop()
    seen: list[Any] = []

    class Asynchronous(Consumer):
        async def on_item(self, event: Event, item: Item) -> None:
            assert asyncio.get_running_loop() is loop
            await asyncio.sleep(0)
            if item.data == b"bad":
                raise Refusal("bad")
            seen.append(item.data)

        async def commit(self, envelope: Envelope) -> None:
            seen.append("commit")

    await serve_recipient(Asynchronous)
    await broker.start_event("E", "e")
    assert await broker.send("E", "e", 0, b"a", b"b") == [True, None]
    assert await broker.call("end_envelope", "E") == [True, None]
    assert seen == [b"a", b"b", "commit"]
    await broker.start_event("F", "f")
    assert await broker.send("F", "f", 0, b"a", b"bad") == [False, [[[1], "bad"]]]


async def test_workers_may_be_asynchronous(broker: BrokerDouble, serve_recipient: Serve) -> None:
    class Awaited(Worker):
        async def on_item(self, event: Event, item: Item) -> list[bytes]:
            return [item.data.upper()]

    class Yielding(Worker):
        async def on_item(self, event: Event, item: Item) -> AsyncIterator[bytes]:
            yield item.data.upper()

    for number, worker in enumerate([Awaited, Yielding]):
        served = await serve_recipient(worker)
        await broker.start_event(f"E{number}", "e")
        _, batches = await broker.send(f"E{number}", "e", 0, b"a", b"b")
        assert decoded(batches) == [(0, [b"A", b"B"], None)]
        await broker.call("stop_envelope", f"E{number}")
        await served.stop()


async def test_on_batch_answers_a_value_per_item_or_items(broker: BrokerDouble, serve_recipient: Serve) -> None:
    class Batches(Worker):
        def on_batch(self, event: Event, batch: Batch) -> Any:
            if batch.data[0] == b"merge":
                return [Item.of(b"merged", [item.index for item in batch])]
            return batch.data[:2]

    await serve_recipient(Batches)
    await broker.start_event("E", "e")
    assert decoded((await broker.send("E", "e", 0, b"a", b"b"))[1]) == [(0, [b"a", b"b"], None)]
    assert decoded((await broker.send("E", "e", 2, b"merge", b"x"))[1]) == [(2, [b"merged"], [[2, 3]])]
    with pytest.raises(Failed, match="2 values to 3 items"):
        await broker.send("E", "e", 4, b"a", b"b", b"c")


async def test_all_of_it_runs_in_one_thread(broker: BrokerDouble, serve_recipient: Serve) -> None:
    threads = set()

    class Table(Consumer):
        def on_start(self) -> None:
            threads.add(threading.get_ident())
            self.table = sqlite3.connect(":memory:")  # refuses to be used in another thread
            self.table.execute("create table client (data blob)")

        def on_item(self, event: Event, item: Item) -> None:
            self.table.execute("insert into client values (?)", [item.data])

        def commit(self, envelope: Envelope) -> None:
            self.table.commit()

        def on_stop(self) -> None:
            threads.add(threading.get_ident())
            self.table.close()

    served = await serve_recipient(Table)
    await broker.start_event("E", "e")
    assert await broker.send("E", "e", 0, b"a") == [True, None]
    assert await broker.call("end_envelope", "E") == [True, None]
    await served.stop()
    assert len(threads) == 1


async def test_sys_exit_in_the_authors_code_is_answered(broker: BrokerDouble, serve_recipient: Serve) -> None:
    class Exits(Consumer):
        def on_item(self, event: Event, item: Item) -> None:
            raise SystemExit(1)

    await serve_recipient(Exits)
    await broker.start_event("E", "e")
    with pytest.raises(Failed, match="SystemExit"):
        await broker.send("E", "e", 0, b"x")
