"""What the broker keeps of errors that recipients report, and the states of events, as those see them who repair."""

import asyncio
import datetime
import json
from typing import Any

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker
from tests.support.operating import xbus
from tests.support.showing import become, shown
from tests.support.waiting import eventually
from xbus.states import TrackingState

MALFORMED: dict[str, Any] = {
    "a text": ((False, "no"), [(None, "malformed error: no")]),
    "no list around it": ((False, [[0], "no"]), [(None, "malformed error: [0]"), (None, "malformed error: no")]),
    "a message that is none": ((False, [([0], 5)]), [([0], "malformed error: 5")]),
    "an item below 0": ((False, [([-1], "no")]), [([-1], "no (there is no item -1)")]),
    "an item that the event does not have": ((False, [([0, 7], "no")]), [([0, 7], "no (there is no item 7)")]),
}
"""What a consumer answers to the only item of an event, and what is kept of it."""


async def test_a_reported_error_is_kept_with_where_it_happened_and_can_be_tracked(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    """``c`` sits in two nodes: one gets the items as emitted, the other those of the worker."""
    add_bus(sqlite_url, {"test_event": {"w": ["late"], "late:c": [], "early:c": []}})
    daemon = start_daemon(sqlite_url)

    def refuse_late(envelope_id: str, event_id: str, indices: list[int], data: bytes) -> Any:
        return (False, [(indices, "no such client"), ([0, 1], "too late")]) if data.endswith(b"w_1") else (True, None)

    async with (
        OldWorker(daemon.back, "w_1") as worker,
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        before = datetime.datetime.now(datetime.UTC)
        failed: dict[str, str] = {}

        async def fails(node: str, recipient: Any, verb: str, answer: Any) -> None:
            recipient.behave[verb] = answer if callable(answer) else lambda *_: answer
            failed[node] = await emitter.emit(b"a", b"b")
            await become(sqlite_url, failed[node], c_1="parked")
            recipient.behave.clear()

        await fails("late", consumer, "send_item", refuse_late)
        await fails("early", consumer, "send_item", (False, [([0], "too early")]))
        await fails("w", worker, "start_event", (False, [([], "closed")]))
        await fails("late, early", consumer, "end_event", (False, [([0, 1], "they do not add up")]))
        await fails("", consumer, "end_envelope", (False, [([5], "full")]))
        for name, (answer, kept) in MALFORMED.items():
            consumer.behave["send_item"] = lambda *_, answer=answer: answer
            envelope_id = await emitter.emit(b"x")
            await become(sqlite_url, envelope_id, c_1="parked")
            errors = shown(sqlite_url, envelope_id).failures[::-1]
            assert [(error.indices, error.message) for error in errors] == kept, name
            assert {(error.node, error.code) for error in errors} == {("early", "refused")}, name

    said = {
        node: [(error.role, error.verb, error.indices, error.message) for error in shown(sqlite_url, id_).failures]
        for node, id_ in failed.items()
    }
    assert said == {
        "late": [("c_1", "send_item", [0, 1], "too late"), ("c_1", "send_item", [0], "no such client")],
        "early": [("c_1", "send_item", [0], "too early")],
        "w": [("w_1", "start_event", [], "closed")],
        "late, early": [("c_1", "end_event", [0, 1], "they do not add up")],
        "": [("c_1", "end_envelope", [5], "full")],
    }
    for node, envelope_id in failed.items():
        detail = shown(sqlite_url, envelope_id)
        (event,) = detail.event_list
        for error in detail.failures:
            assert (error.node, str(error.envelope_id)) == (node or None, envelope_id)
            assert error.event_id == (event.id if node else None)
            assert before <= error.at <= datetime.datetime.now(datetime.UTC)
            assert error.tracking is TrackingState.UNPROCESSED

    failure_id = shown(sqlite_url, failed["early"]).failures[0].id
    await xbus(daemon, "failure", "track", str(failure_id), "on_hold", "--comment", "asked")
    told = await xbus(daemon, "failure", "list", "--role", "c_1", "--state", "on_hold", "--json")
    assert [json.loads(line)["failure_id"] for line in told.splitlines()] == [failure_id]
    assert shown(sqlite_url, failed["early"]).failures[0].tracking is TrackingState.ON_HOLD


async def test_the_states_of_an_event(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": [], "d": []}, "worked": {"w": ["c"], "c": []}, "none": {}})
    daemon = start_daemon(sqlite_url)

    def states(envelope_id: str) -> list[str]:
        return [event.state for event in shown(sqlite_url, envelope_id).event_list]

    async def becomes(envelope_id: str, *wanted: str) -> None:
        await eventually(lambda: states(envelope_id) == [*wanted], f"{wanted}")

    async with OldEmitter(daemon.front) as emitter:
        of_no_consumer = await emitter.emit(b"x", type_name="none")
        cancelled, in_cancelled = await emitter.start()
        await emitter.send(cancelled, in_cancelled, b"x")
        assert states(cancelled) == ["pending"]
        assert await emitter.call.cancel_envelope(emitter.token, cancelled) is True
        first = await emitter.emit(b"x")
        assert states(first) == ["pending"]

        async with OldConsumer(daemon.back, "c_1") as consumer:
            await becomes(first, "partial")
            without_worker = await emitter.emit(b"x", type_name="worked")
            await become(sqlite_url, without_worker, c_1="waiting")
            assert states(without_worker) == ["pending"]

            go_on = asyncio.Event()

            async def refuse_later(*_: Any) -> Any:
                await go_on.wait()
                return False, [([0], "no")]

            consumer.behave["send_item"] = refuse_later
            stopped = await emitter.emit(b"x")
            await becomes(stopped, "delivering")
            go_on.set()
            await becomes(stopped, "stopped")
            consumer.behave.clear()

            envelope_id, event_id = await emitter.start()
            other_id = await emitter.start_event(envelope_id, "worked")
            await emitter.end(envelope_id, event_id, other_id)
            await become(sqlite_url, envelope_id, c_1="waiting")
            async with OldConsumer(daemon.back, "d_1"), OldWorker(daemon.back, "w_1"):
                await becomes(first, "done")
                # One event goes to both consumers, the other to one of them.
                await becomes(envelope_id, "done", "done")
                await becomes(without_worker, "done")

        assert states(cancelled) == ["cancelled"]
        assert states(of_no_consumer) == ["pending"]
