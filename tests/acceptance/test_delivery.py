"""Envelopes of a foreign emitter on their way through graphs to foreign recipients."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import add_bus, add_demo
from tests.support.old_clients import OldConsumer, OldEmitter, OldRecipient, OldWorker, share_runs


async def test_the_demo_graph_brings_items_both_ways_between_one_start_and_one_end(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_demo(database_url)
    daemon = start_daemon(database_url)
    async with (
        OldConsumer(daemon.back, "consumer_role") as consumer,
        OldWorker(daemon.back, "worker_role") as worker,
        OldEmitter(daemon.front, "test_emitter") as emitter,
    ):
        envelope_id, event_id = await emitter.start()
        await emitter.send(envelope_id, event_id, *(b"%d" % n for n in range(10)))
        assert consumer.got("start_event") == []
        await emitter.end(envelope_id, event_id)
        await consumer.wait_for([envelope_id])

    emitted = [b"%d" % n for n in range(10)]
    worked = [b"%d worker_role" % n for n in range(10)]
    assert consumer.got("start_event") == [[envelope_id, event_id, "test_event"]]
    assert consumer.got("end_event") == [[envelope_id, event_id]]
    assert consumer.got("end_envelope") == [[envelope_id]]
    assert consumer.verbs(envelope_id)[0] == "start_event"
    assert consumer.verbs(envelope_id)[-2:] == ["end_event", "end_envelope"]
    assert [item for item in consumer.items() if b"worker" not in item] == emitted
    assert [item for item in consumer.items() if b"worker" in item] == worked
    assert [args[2] for args in worker.got("send_item")] == [[n] for n in range(10)]
    assert worker.verbs(envelope_id) == ["start_event", *["send_item"] * 10, "end_event", "end_envelope"]


async def test_twenty_envelopes_at_once_through_one_worker(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"mark": ["store"], "store": []}})
    daemon = start_daemon(database_url)
    async with (
        OldConsumer(daemon.back, "store_1") as consumer,
        OldWorker(daemon.back, "mark_1"),
        OldEmitter(daemon.front) as emitter,
    ):
        sent = await asyncio.gather(*(emitter.emit(b"%d" % n) for n in range(20)))
        await consumer.wait_for(sent)

    assert sorted(consumer.items()) == sorted(b"%d mark_1" % n for n in range(20))
    assert sorted(consumer.committed) == sorted(sent)


async def test_a_hundred_items_in_flight_in_one_event(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"store": []}})
    daemon = start_daemon(database_url)
    items = [b"%d" % n for n in range(100)]
    async with OldConsumer(daemon.back, "store_1") as consumer, OldEmitter(daemon.front) as emitter:
        envelope_id, event_id = await emitter.start()
        sent = [emitter.call.send_item(emitter.token, envelope_id, event_id, item) for item in items]
        assert await asyncio.gather(*sent) == [True] * 100
        await emitter.end(envelope_id, event_id)
        await consumer.wait_for([envelope_id])

    assert consumer.items() == items


async def test_several_clients_of_one_login_fill_one_event_and_need_not_wait(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    """Calls in flight count in order of arrival: what is behind an end is late, what is before it is in."""
    add_bus(sqlite_url, {"test_event": {"store": []}})
    daemon = start_daemon(sqlite_url)
    async with (
        OldConsumer(daemon.back, "store_1") as consumer,
        OldEmitter(daemon.front) as one,
        OldEmitter(daemon.front) as two,
    ):
        envelope_id, event_id = await one.start()
        several = [
            client.call.send_item(client.token, envelope_id, event_id, name + b"%d" % n)
            for n in range(100)
            for client, name in ((one, b"one "), (two, b"two "))
        ]
        assert await asyncio.gather(*several) == [True] * 200
        last = one.call.send_item(one.token, envelope_id, event_id, b"last")
        end = one.call.end_event(one.token, envelope_id, event_id)
        late = one.call.send_item(one.token, envelope_id, event_id, b"late")
        sealed = one.call.end_envelope(one.token, envelope_id)
        assert [await call for call in (sealed, late, end, last)] == [True, False, (True, None), True]
        await consumer.wait_for([envelope_id])

    items = consumer.items()
    for name in (b"one ", b"two "):
        assert [item for item in items if item.startswith(name)] == [name + b"%d" % n for n in range(100)]
    assert (len(items), items[-1]) == (201, b"last")
    assert [args[2] for args in consumer.got("send_item")] == [[n] for n in range(201)]


GRAPHS = {
    "a chain of workers": ({"w1": ["w2"], "w2": ["w3"], "w3": ["c"], "c": []}, {"c": [b"x w1_1 w2_1 w3_1"]}),
    "fan-out": ({"w": ["c", "d", "e"], "c": [], "d": [], "e": []}, {name: [b"x w_1"] for name in "cde"}),
    "several starts": ({"c": [], "d": [], "w": ["e"], "e": []}, {"c": [b"x"], "d": [b"x"], "e": [b"x w_1"]}),
    "a diamond": (
        {"t": ["l", "r"], "l": ["c"], "r": ["c"], "c": []},
        {"c": [b"x t_1 l_1", b"x t_1 r_1"]},
    ),
    "a worker that merges two": (
        {"l": ["m"], "r": ["m"], "m": ["c"], "c": []},
        {"c": [b"x l_1 m_1", b"x r_1 m_1"]},
    ),
    "one service in two branches": (
        {"a": ["p:s"], "b": ["q:s"], "p:s": ["c"], "q:s": ["d"], "c": [], "d": []},
        {"c": [b"x a_1 s_1"], "d": [b"x b_1 s_1"]},
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
async def test_graphs(name: str, sqlite_url: str, start_daemon: StartDaemon) -> None:
    nodes, expected = GRAPHS[name]
    add_bus(sqlite_url, {"test_event": nodes})
    daemon = start_daemon(sqlite_url)
    services = {node.partition(":")[2] or node: bool(children) for node, children in nodes.items()}
    async with AsyncExitStack() as stack:
        consumers: dict[str, OldRecipient] = {}
        for service, works in services.items():
            kind = OldWorker if works else OldConsumer
            consumers[service] = await stack.enter_async_context(kind(daemon.back, f"{service}_1"))
        emitter = await stack.enter_async_context(OldEmitter(daemon.front))
        sent = [await emitter.emit(b"x") for _ in range(2)]
        for service in expected:
            await consumers[service].wait_for(sent)

    for service, items in expected.items():
        for envelope_id in sent:
            assert sorted(consumers[service].items(envelope_id)) == sorted(items)
            assert consumers[service].verbs(envelope_id).count("start_event") == 1
            assert consumers[service].verbs(envelope_id)[-2:] == ["end_event", "end_envelope"]


async def test_every_role_of_a_consumer_service_gets_everything(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}}, {"c": 3})
    daemon = start_daemon(sqlite_url)
    async with AsyncExitStack() as stack:
        consumers = [await stack.enter_async_context(OldConsumer(daemon.back, f"c_{n}")) for n in (1, 2, 3)]
        worker = await stack.enter_async_context(OldWorker(daemon.back, "w_1"))
        emitter = await stack.enter_async_context(OldEmitter(daemon.front))
        await share_runs(emitter, consumers)
        sent = [await emitter.emit(b"a", b"b") for _ in range(3)]
        for consumer in consumers:
            await consumer.wait_for(sent)

    assert all(consumer.items() == [b"a w_1", b"b w_1"] * 3 for consumer in consumers)
    assert worker.items() == [b"a", b"b"] * 3


async def test_a_slow_branch_of_a_diamond_holds_nobody_for_ever(sqlite_url: str, start_daemon: StartDaemon) -> None:
    """More goes the fast way than may be held before the merge while the slow way has answered nothing."""
    add_bus(sqlite_url, {"test_event": {"t": ["fast", "slow"], "fast": ["m"], "slow": ["m"], "m": ["c"], "c": []}})
    daemon = start_daemon(sqlite_url, {"back": {"window_bytes": 1000}})
    items = [b"%03d" % n + b"." * 200 for n in range(40)]
    async with AsyncExitStack() as stack:
        workers = {
            name: await stack.enter_async_context(OldWorker(daemon.back, f"{name}_1", lambda i, d: [(i, d)]))
            for name in ("t", "fast", "slow", "m")
        }
        seen_at_merge = asyncio.Event()

        async def slow(envelope_id: str, event_id: str, indices: list[int], data: bytes) -> object:
            if indices == [0]:
                await seen_at_merge.wait()
            return True, [(indices, b"slow " + data)]

        def merge(envelope_id: str, event_id: str, indices: list[int], data: bytes) -> object:
            if indices[0] >= 3:
                seen_at_merge.set()
            return True, [(indices, data)]

        workers["slow"].behave["send_item"] = slow
        workers["m"].behave["send_item"] = merge
        consumer = await stack.enter_async_context(OldConsumer(daemon.back, "c_1"))
        emitter = await stack.enter_async_context(OldEmitter(daemon.front))
        envelope_id = await emitter.emit(*items)
        await consumer.wait_for([envelope_id])

    assert [item for item in consumer.items() if not item.startswith(b"slow")] == items
    assert [item for item in consumer.items() if item.startswith(b"slow")] == [b"slow " + item for item in items]


async def test_workers_filter_split_and_merge(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"drop_odd": ["split"], "split": ["pair"], "pair": ["c"], "c": []}})
    daemon = start_daemon(sqlite_url)
    held: list[tuple[list[int], bytes]] = []

    def pair(indices: list[int], data: bytes) -> list[tuple[list[int], bytes]]:
        held.append((indices, data))
        if len(held) < 2:
            return []
        (first, a), (second, b) = held
        held.clear()
        return [(first + [i for i in second if i not in first], a + b)]

    async with (
        OldWorker(daemon.back, "drop_odd_1", lambda i, d: [(i, d)] if i[0] % 2 == 0 else []),
        OldWorker(daemon.back, "split_1", lambda i, d: [(i, d + b"a"), (i, d + b"b"), (i, d + b"c")]),
        OldWorker(daemon.back, "pair_1", pair),
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        await consumer.wait_for([await emitter.emit(b"0", b"1", b"2", b"3")])

    assert [(args[2], args[3]) for args in consumer.got("send_item")] == [
        ([0], b"0a0b"),
        ([0, 2], b"0c2a"),
        ([2], b"2b2c"),
    ]


async def test_a_worker_that_drops_everything_leaves_an_empty_event(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}})
    daemon = start_daemon(sqlite_url)
    async with (
        OldWorker(daemon.back, "w_1", lambda i, d: []),
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        dropped, empty = await emitter.emit(b"0", b"1"), await emitter.emit()
        await consumer.wait_for([dropped, empty])

    assert consumer.verbs(dropped) == ["start_event", "end_event", "end_envelope"]
    assert consumer.verbs(empty) == ["start_event", "end_event", "end_envelope"]


async def test_an_envelope_of_several_types_ends_once_at_each_recipient(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"one": {"w": ["c"], "c": []}, "two": {"v": ["c", "d"], "c": [], "d": []}, "nobody": {}})
    daemon = start_daemon(database_url)
    async with (
        OldWorker(daemon.back, "w_1"),
        OldWorker(daemon.back, "v_1"),
        OldConsumer(daemon.back, "c_1") as both,
        OldConsumer(daemon.back, "d_1") as second,
        OldEmitter(daemon.front) as emitter,
    ):
        await emitter.emit(b"lost", type_name="nobody")
        envelope_id = await emitter.call.start_envelope(emitter.token)
        events = [await emitter.start_event(envelope_id, name) for name in ("one", "two", "nobody", "one")]
        for number in range(3):  # the events of an envelope may be filled by turns
            await asyncio.gather(*(emitter.send(envelope_id, event, b"%d" % number) for event in events))
        await emitter.end(envelope_id, *reversed(events))
        await both.wait_for([envelope_id])
        await second.wait_for([envelope_id])

    of_event = ["start_event", *["send_item"] * 3, "end_event"]
    assert both.verbs(envelope_id) == [*of_event * 3, "end_envelope"]
    assert [args[1:] for args in both.got("start_event")] == [
        [events[0], "one"],
        [events[1], "two"],
        [events[3], "one"],
    ]
    assert second.verbs(envelope_id) == [*of_event, "end_envelope"]
    assert second.items() == [b"0 v_1", b"1 v_1", b"2 v_1"]


async def test_a_worker_is_given_no_event_before_it_is_ready(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}})
    daemon = start_daemon(sqlite_url)
    async with (
        OldWorker(daemon.back, "w_1") as worker,
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        worker.behave["end_event"] = lambda *_: (True, None)
        sent = [await emitter.emit(b"%d" % n) for n in range(2)]
        await consumer.wait_for(sent[:1])
        with pytest.raises(AssertionError, match="did not happen"):
            await consumer.wait_for(sent, timeout=1)
        assert len(worker.got("start_event")) == 1
        await worker.say_ready()
        await consumer.wait_for(sent)

    assert consumer.committed == sent


async def test_two_roles_of_a_worker_service_share_the_work(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}}, {"w": 2})
    daemon = start_daemon(sqlite_url)
    async with (
        OldWorker(daemon.back, "w_1") as first,
        OldWorker(daemon.back, "w_2") as second,
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        sent = [await emitter.emit(b"%d" % n) for n in range(6)]
        await consumer.wait_for(sent)

    assert first.items()
    assert second.items()
    assert sorted(first.items() + second.items()) == [b"%d" % n for n in range(6)]
    assert consumer.committed == sent
