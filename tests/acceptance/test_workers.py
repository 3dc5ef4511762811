"""Who works, and what becomes of envelopes when nobody is free to: workers that are few, slow, new, or leave."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker
from tests.support.showing import become, shown
from tests.support.waiting import eventually

ITEM_SECONDS = 5
"""For so long the broker waits for what a worker makes of an item."""


class Gate:
    """Holds a worker at its first item until it is opened."""

    def __init__(self, worker: OldWorker) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self._worker = worker
        worker.behave["send_item"] = self._hold

    async def _hold(self, envelope_id: str, event_id: str, indices: list[int], data: bytes) -> Any:
        self.reached.set()
        await self.opened.wait()
        return self._worker.do_send_item(envelope_id, event_id, indices, data)


async def test_two_types_that_use_two_workers_in_opposite_order_do_not_wait_for_each_other(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    one, two = {"a": ["b"], "b": ["c"], "c": []}, {"b": ["a"], "a": ["d"], "d": []}
    add_bus(sqlite_url, {"one": one, "two": two})
    daemon = start_daemon(sqlite_url)
    async with (
        OldWorker(daemon.back, "a_1"),
        OldWorker(daemon.back, "b_1"),
        OldConsumer(daemon.back, "c_1") as of_one,
        OldConsumer(daemon.back, "d_1") as of_two,
        OldEmitter(daemon.front) as emitter,
        OldEmitter(daemon.front, "emitter_2") as other,
    ):
        ones, twos = await asyncio.gather(
            asyncio.gather(*(emitter.emit(b"x", b"y", type_name="one") for _ in range(15))),
            asyncio.gather(*(other.emit(b"x", b"y", type_name="two") for _ in range(15))),
        )
        # Both types in one envelope, whichever comes first.
        both = []
        for names in (("one", "two"), ("two", "one")) * 3:
            envelope_id = await emitter.call.start_envelope(emitter.token)
            events = [await emitter.start_event(envelope_id, name) for name in names]
            for event_id in events:
                await emitter.send(envelope_id, event_id, b"x", b"y")
            await emitter.end(envelope_id, *events)
            both.append(envelope_id)
        await of_one.wait_for([*ones, *both])
        await of_two.wait_for([*twos, *both])

    assert of_one.items() == [b"x a_1 b_1", b"y a_1 b_1"] * 21
    assert of_two.items() == [b"x b_1 a_1", b"y b_1 a_1"] * 21
    assert sorted(of_one.committed) == sorted([*ones, *both])
    assert sorted(of_two.committed) == sorted([*twos, *both])


@pytest.fixture
def shared_work(sqlite_url: str, start_daemon: StartDaemon) -> Daemon:
    """A broker with four types, each with a consumer of its own, whose work is done by one service of three roles."""
    names = ("one", "two", "three", "four")
    add_bus(sqlite_url, {name: {"w": [f"c{name}"], f"c{name}": []} for name in names}, {"w": 3})
    return start_daemon(sqlite_url)


async def test_work_goes_to_who_is_free_and_a_new_worker_joins_at_once(shared_work: Daemon) -> None:
    async with AsyncExitStack() as stack:
        consumers = {
            name: await stack.enter_async_context(OldConsumer(shared_work.back, f"c{name}_1"))
            for name in ("one", "two", "three", "four")
        }
        emitter = await stack.enter_async_context(OldEmitter(shared_work.front))
        first = await stack.enter_async_context(OldWorker(shared_work.back, "w_1"))
        at_first = Gate(first)
        slow = await emitter.emit(b"slow", type_name="one")
        await eventually(at_first.reached.is_set, "the first is at work")

        # The second has nothing to do, so it gets everything.
        second = await stack.enter_async_context(OldWorker(shared_work.back, "w_2"))
        quick = [await emitter.emit(b"%d" % n, type_name="two") for n in range(5)]
        await consumers["two"].wait_for(quick)
        assert second.items() == [b"%d" % n for n in range(5)]

        # Both are at work, so this waits, and is the third's as soon as that is there.
        at_second = Gate(second)
        also_slow = await emitter.emit(b"slow too", type_name="two")
        await eventually(at_second.reached.is_set, "the second is at work")
        waiting = await emitter.emit(b"waits", type_name="three")
        later = await emitter.emit(b"later", type_name="four")
        third = await stack.enter_async_context(OldWorker(shared_work.back, "w_3"))
        await consumers["three"].wait_for([waiting])
        await consumers["four"].wait_for([later])
        assert sorted(third.items()) == [b"later", b"waits"]
        assert consumers["one"].committed == []

        at_first.opened.set()
        at_second.opened.set()
        await consumers["one"].wait_for([slow])
        await consumers["two"].wait_for([also_slow])
    assert first.items() == [b"slow"]
    assert consumers["one"].items() == [b"slow w_1"]
    assert consumers["two"].items()[-1:] == [b"slow too w_2"]


@pytest.mark.parametrize("how", ["logs out", "vanishes"])
async def test_what_a_leaving_worker_leaves_undone_is_anothers(
    how: str, sqlite_url: str, start_daemon: StartDaemon
) -> None:
    """Its answer is waited for when it logs out, and counts no more when the time for an item is over."""
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}}, {"w": 2})
    daemon = start_daemon(sqlite_url, {"back": {"send_item_timeout": ITEM_SECONDS}})
    leaving = OldWorker(daemon.back, "w_1")
    async with (
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
        leaving,
    ):
        gate = Gate(leaving)
        envelope_id = await emitter.emit(b"x", b"y")
        await eventually(gate.reached.is_set, "it is at work")
        later = await emitter.emit(b"z")
        async with OldWorker(daemon.back, "w_2") as other:
            if how == "logs out":
                assert await leaving.call.logout(leaving.token) is True
            else:
                await leaving.leave()
            await consumer.wait_for([envelope_id, later])
            gate.opened.set()
            assert sorted(other.items()) == [b"x", b"y", b"z"]

    assert consumer.items(envelope_id) == [b"x w_2", b"y w_2"]
    assert consumer.items(later) == [b"z w_2"]
    assert sorted(consumer.committed) == sorted([envelope_id, later])


WRONG_INDICES: dict[str, list[list[int]]] = {
    "too few": [[], [1], [2]],
    "too many": [[0, 1], [1], [2]],
    "one later": [[1], [2], [2]],
    "one that there is not": [[0], [1], [3]],
    "swapped": [[1], [0], [2]],
}
"""What a worker answers to three items."""


async def test_wrong_indices_fail_the_event_and_go_no_further(sqlite_url: str, start_daemon: StartDaemon) -> None:
    """A worker may name any items that it was given, and no others: none that come later either."""
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}})
    daemon = start_daemon(sqlite_url)
    async with (
        OldWorker(daemon.back, "w_1") as worker,
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        for name, answers in WRONG_INDICES.items():
            worker.behave["send_item"] = lambda e, v, i, data, answers=answers: (True, [(answers[i[0]], data)])
            envelope_id = await emitter.emit(b"0", b"1", b"2")
            await become(sqlite_url, envelope_id, c_1="parked")
            failure = shown(sqlite_url, envelope_id).failures[0]
            assert (failure.role, failure.verb, failure.code) == ("w_1", "send_item", "nonsense"), name
            assert failure.message, name
            assert consumer.items() == [], name
        worker.behave.clear()
        good = await emitter.emit(b"good")
        await consumer.wait_for([good])

    assert consumer.committed == [good]
    assert consumer.items() == [b"good w_1"]


async def test_indices_of_earlier_items_are_right(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}})
    daemon = start_daemon(sqlite_url)
    async with (
        OldWorker(daemon.back, "w_1", lambda i, d: [([*range(i[0] + 1)], d), ([0], d)]),
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        await consumer.wait_for([await emitter.emit(b"0", b"1", b"2")])

    assert [args[2] for args in consumer.got("send_item")] == [[0], [0], [0, 1], [0], [0, 1, 2], [0]]
