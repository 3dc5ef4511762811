"""What may go well later is tried again, and parked when it does not; who is in trouble gets probes only."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker, share_runs
from tests.support.showing import become, shown
from tests.support.waiting import eventually

SWIFT = {"back": {"first_delay": 0.1, "longest_delay": 0.4, "trouble_after": 3, "probe_interval": 0.2}}


def fails(*_: Any) -> None:
    raise ValueError("the database is locked")


def refuses(*_: Any) -> Any:
    return False, [([0], "no such client")]


class FailsAndWaits:
    """Fails so many times, then takes its time until the test lets it go on, and takes everything."""

    def __init__(self, times: int) -> None:
        self._times = times
        self.waits = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def __call__(self, *args: Any) -> Any:
        if self._times:
            self._times -= 1
            fails(*args)
        self.waits.set()
        await self.goes_on.wait()
        return True, None


def first_fails(times: int) -> Callable[..., Any]:
    """Fails so many times, then takes everything."""
    calls = iter(range(times))

    def answer(*args: Any) -> Any:
        return (True, None) if next(calls, None) is None else fails(*args)

    return answer


async def test_what_fails_is_tried_again_until_it_goes_well_or_its_attempts_are_used_up(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"test_event": {"c": [], "d": []}}, wishes={"d": {"attempts": 2}})
    daemon = start_daemon(database_url, SWIFT)
    async with (
        OldConsumer(daemon.back, "c_1") as first,
        OldConsumer(daemon.back, "d_1") as second,
        OldEmitter(daemon.front) as emitter,
    ):
        first.behave["send_item"] = first_fails(2)
        second.behave["send_item"] = fails
        envelope_id = await emitter.emit(b"x")
        roles = await become(database_url, envelope_id, c_1="done", d_1="parked")
        second.behave.clear()
        later = await emitter.emit(b"y")
        await second.wait_for([later])

    assert (roles["d_1"].code, roles["d_1"].attempts) == ("error_reply", 2)
    assert "the database is locked" in (roles["d_1"].cause or "")
    told = [(failure.role, failure.verb) for failure in shown(database_url, envelope_id).failures]
    assert sorted(told) == [("c_1", "send_item")] * 2 + [("d_1", "send_item")] * 2
    # Each attempt that failed is followed by a stop, and each but the first begins with one.
    attempts = ["start_event", "send_item", "stop_envelope", "stop_envelope", "start_event", "send_item"]
    assert first.verbs(envelope_id) == [
        *attempts,
        *("stop_envelope", "stop_envelope", "start_event", "send_item", "end_event", "end_envelope"),
    ]
    assert second.verbs(envelope_id) == [*attempts, "stop_envelope"]


async def test_one_in_trouble_is_probed_until_one_goes_well_and_holds_nobody_up(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    # Its delay is long, so that no second attempt comes before it is in trouble.
    slow = {"attempts": 2, "first_delay": 60.0, "longest_delay": 60.0}
    add_bus(sqlite_url, {"test_event": {"c": [], "d": []}}, wishes={"c": slow})
    daemon = start_daemon(sqlite_url, SWIFT)
    async with (
        OldConsumer(daemon.back, "c_1") as troubled,
        OldConsumer(daemon.back, "d_1") as other,
        OldEmitter(daemon.front) as emitter,
    ):
        # Three that show the trouble, and five probes; the next one stays open.
        troubled.behave["start_event"] = answer = FailsAndWaits(8)
        sent = [await emitter.emit(b"%d" % number) for number in range(12)]
        await other.wait_for(sent)
        await eventually(answer.waits.is_set, "it is probed")
        assert "action=troubled" in daemon.log
        # Those that show the trouble have had more attempts than there are, and others not one; nothing is parked.
        tried = {args[0] for args in troubled.got("start_event")}
        assert len(tried) < len(sent)
        assert not [id_ for id_ in sent if shown(sqlite_url, id_).summary.roles[0].state == "parked"]
        answer.goes_on.set()
        await troubled.wait_for(sent)
        for envelope_id in sent:
            await become(sqlite_url, envelope_id, c_1="done", d_1="done")

    assert sorted(troubled.committed) == sorted(sent)
    assert other.committed == sent
    assert (daemon.log.count("action=troubled"), daemon.log.count("recipient no longer in trouble")) == (1, 1)


async def test_a_worker_in_trouble_is_probed_too(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}, "plain": {"c": []}}, wishes={"c": {"attempts": 50}})
    daemon = start_daemon(sqlite_url, SWIFT)
    async with (
        OldWorker(daemon.back, "w_1") as worker,
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        worker.behave["start_event"] = fails
        sent = [await emitter.emit(b"%d" % number) for number in range(8)]
        await eventually(lambda: "action=troubled" in daemon.log, "it is told of")
        plain = await emitter.emit(b"x", type_name="plain")
        await consumer.wait_for([plain])
        begun = len(worker.got("start_event"))
        await eventually(lambda: len(worker.got("start_event")) >= begun + 4, "it is probed")
        worker.behave.clear()
        await consumer.wait_for(sent)
    assert sorted(consumer.committed) == sorted([plain, *sent])


async def test_who_stands_for_itself_neither_stops_the_others_nor_is_stopped(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": [], "d": [], "e": []}}, wishes={"e": {"failures": "own"}})
    daemon = start_daemon(sqlite_url, SWIFT)
    async with (
        OldConsumer(daemon.back, "c_1") as first,
        OldConsumer(daemon.back, "d_1") as second,
        OldConsumer(daemon.back, "e_1") as own,
        OldEmitter(daemon.front) as emitter,
    ):
        await share_runs(emitter, [first, second, own])
        first.behave["send_item"] = refuses
        refused_by_one = await emitter.emit(b"x", b"y")
        await become(sqlite_url, refused_by_one, c_1="parked", d_1="parked", e_1="done")
        first.behave.clear()
        own.behave["end_event"] = refuses
        refused_by_own = await emitter.emit(b"x", b"y")
        await become(sqlite_url, refused_by_own, c_1="done", d_1="done", e_1="parked")
    assert own.items(refused_by_one) == [b"x", b"y"]
