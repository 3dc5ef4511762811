"""Recipients that refuse, answer nonsense, are silent, or can't be reached: what becomes of envelopes and of others."""

import asyncio
import datetime
import re
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.daemon import Options
from tests.support.old_clients import METADATA, OldConsumer, OldEmitter, OldWorker, share_runs
from tests.support.operating import xbus
from tests.support.showing import become, shown
from tests.support.waiting import eventually

SILENCE_SECONDS = 4
"""Short for those who are silent, and still long for an answer while other tests keep the machine busy."""

ONCE = {"back": {"attempts": 1}}


def impatient(*verbs: str) -> Options:
    """Has the broker wait a short while only for the answers to these."""
    return {"back": {f"{verb}_timeout": SILENCE_SECONDS for verb in verbs}}


async def never(*_: Any) -> None:
    await asyncio.sleep(3600)


def breaks(*_: Any) -> None:
    raise ValueError("no")


NONSENSE: dict[str, Any] = {
    "None": None,
    "a number": 42,
    "True alone": True,
    "an empty list": [],
    "a text": "True",
    "1 for True": (1, None),
    "a map": {"ok": True},
}

REFUSALS: dict[str, Any] = {
    "nothing": (False,),
    "None": (False, None),
    "a text": (False, "no"),
    "a text with a zero byte": (False, [([0], "no\0no")]),
    "a long text": (False, [([0], "no" * 100_000)]),
    "very many errors": (False, [([n], "no") for n in range(20_000)]),
    "indices that are none": (False, [(["a", -1, 2**63], "no")]),
    "bytes for a text": (False, [([0], b"\xff\x00")]),
    "a tree": (False, {"errors": [{"no": ["no"]}]}),
}
"""What follows False should be a list of indices and messages, and may be anything."""


@pytest.mark.parametrize("verb", ["start_event", "send_item", "end_event", "end_envelope"])
async def test_a_consumer_that_answers_nonsense_parks_the_envelope_alone(
    verb: str, sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
        bad = []
        for answer in NONSENSE.values():
            consumer.behave[verb] = lambda *_, answer=answer: answer
            bad.append(await emitter.emit(b"x"))
            roles = await become(sqlite_url, bad[-1], c_1="parked")
            assert roles["c_1"].code == "nonsense", answer
            await eventually(lambda: bad[-1] in [args[0] for args in consumer.got("stop_envelope")], "it is stopped")
        consumer.behave.clear()
        await consumer.wait_for([await emitter.emit(b"y")])

    failure = shown(sqlite_url, bad[0]).failures[0]
    assert (failure.role, failure.verb, failure.code) == ("c_1", verb, "nonsense")
    assert [consumer.verbs(envelope_id).count("start_event") for envelope_id in bad] == [1] * len(bad)


async def test_a_refusal_may_have_any_shape(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}})
    daemon = start_daemon(database_url)
    async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
        for name, answer in REFUSALS.items():
            consumer.behave["send_item"] = lambda *_, answer=answer: answer
            envelope_id = await emitter.emit(b"x")
            roles = await become(database_url, envelope_id, c_1="parked")
            assert roles["c_1"].code == "refused", name
            assert len(roles["c_1"].cause or "") < 10_000
            assert 1 <= len(shown(database_url, envelope_id).failures) <= 100
        consumer.behave.clear()
        await consumer.wait_for([await emitter.emit(b"y")])


async def test_an_answer_with_a_pickle_in_it_is_never_opened(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
        consumer.behave["send_item"] = lambda *_: (True, datetime.date(2016, 1, 1))
        envelope_id = await emitter.emit(b"x")
        roles = await become(sqlite_url, envelope_id, c_1="parked")
        assert roles["c_1"].code == "bad_answer"
        consumer.behave.clear()
        await consumer.wait_for([await emitter.emit(b"y")])


WRONG_MADE: dict[str, Any] = {
    "no list": (True, 42),
    "a text": (True, "abc"),
    "items without indices": (True, [b"x"]),
    "text for bytes": (True, [([0], "x")]),
    "indices that were never given": (True, [([7], b"x")]),
    "indices below 0": (True, [([-1], b"x")]),
    "an index that is no number": (True, [(["a"], b"x")]),
    "one item without a list": (True, ([0], b"x")),
    "three parts": (True, [([0], b"x", 1)]),
    "an item without indices": (True, [([], b"x")]),
    "a very large index": (True, [([2**63], b"x")]),
    "an index that is a truth": (True, [([False], b"x")]),
    "a nest of lists": (True, [[[[[[[]]]]]]]),
}


async def test_a_worker_that_makes_nonsense_parks_the_envelope_alone(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}})
    daemon = start_daemon(sqlite_url)
    async with (
        OldWorker(daemon.back, "w_1") as worker,
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        bad = []
        for name, answer in WRONG_MADE.items():
            worker.behave["send_item"] = lambda *_, answer=answer: answer
            bad.append(await emitter.emit(b"x"))
            roles = await become(sqlite_url, bad[-1], c_1="parked")
            assert roles["c_1"].code == "nonsense", name
        worker.behave.clear()
        await consumer.wait_for([await emitter.emit(b"y")])

    assert shown(sqlite_url, bad[0]).failures[0].role == "w_1"
    assert [args[0] for args in consumer.got("stop_envelope")] == bad
    assert consumer.items() == [b"y w_1"]


async def test_a_refusal_parks_the_envelope_for_all_and_all_roll_back(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"test_event": {"w": ["c", "d"], "c": [], "d": []}})
    daemon = start_daemon(database_url)
    async with (
        OldWorker(daemon.back, "w_1") as worker,
        OldConsumer(daemon.back, "c_1") as refusing,
        OldConsumer(daemon.back, "d_1") as other,
        OldEmitter(daemon.front) as emitter,
    ):
        await share_runs(emitter, [refusing, other])
        worker.calls.clear()
        refusing.behave["send_item"] = lambda *_: (False, [([1], "no such client"), ([0, 1], "too late")])
        envelope_id = await emitter.emit(b"0", b"1")
        await become(database_url, envelope_id, c_1="parked", d_1="parked")
        for recipient in (worker, refusing, other):
            await eventually(lambda: recipient.got("stop_envelope"), "all are stopped")  # noqa: B023
        refusing.behave.clear()
        good = await emitter.emit(b"2")
        await refusing.wait_for([good])
        await other.wait_for([good])

    assert envelope_id not in refusing.committed + other.committed
    failures = shown(database_url, envelope_id).failures
    assert {(failure.role, failure.verb, failure.code) for failure in failures} == {("c_1", "send_item", "refused")}
    assert {(failure.message, str(failure.indices)) for failure in failures} == {
        ("no such client", "[1]"),
        ("too late", "[0, 1]"),
    }
    told = await xbus(daemon, "envelope", "show", envelope_id)
    assert "no such client" in told
    assert "parked" in told


async def test_a_silent_consumer_leaves_the_run_and_does_not_hold_the_others(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": [], "d": []}})
    daemon = start_daemon(sqlite_url, impatient("send_item", "stop_envelope"))
    async with (
        OldConsumer(daemon.back, "c_1") as silent,
        OldConsumer(daemon.back, "d_1") as other,
        OldEmitter(daemon.front) as emitter,
    ):
        # Not even the stop is answered.
        silent.behave |= {"send_item": never, "stop_envelope": never}
        first = await emitter.emit(b"0")
        roles = await become(sqlite_url, first, c_1="retry", d_1="done")
        assert roles["c_1"].code == "timed_out"
        later = [await emitter.emit(b"%d" % n) for n in (1, 2)]
        # It still owes an answer, so it gets nothing more; the other one does.
        await other.wait_for(later)
        assert len(silent.got("start_event")) == 1
        assert silent.got("stop_envelope") == [[first]]
        silent.behave.clear()
        await silent.register()
        await silent.wait_for([first, *later])
        await become(sqlite_url, first, c_1="done")

    assert silent.verbs(first)[-4:] == ["start_event", "send_item", "end_event", "end_envelope"]
    assert silent.verbs(first)[-5] == "stop_envelope"
    assert other.items() == [b"0", b"1", b"2"]


@pytest.mark.parametrize("verb", ["start_event", "end_event", "end_envelope"])
async def test_a_time_out_is_told_by_its_verb(verb: str, sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": [], "d": []}})
    daemon = start_daemon(sqlite_url, impatient(verb))
    async with (
        OldConsumer(daemon.back, "c_1") as silent,
        OldConsumer(daemon.back, "d_1") as other,
        OldEmitter(daemon.front) as emitter,
    ):
        silent.behave[verb] = never
        envelope_id = await emitter.emit(b"0")
        roles = await become(sqlite_url, envelope_id, c_1="retry", d_1="done")
        await eventually(lambda: silent.got("stop_envelope"), "it is stopped")
        assert other.committed == [envelope_id]
        # It hangs no longer, and another of its kind takes its place.
        async with OldConsumer(daemon.back, "c_1") as lively:
            await lively.wait_for([envelope_id])
            await become(sqlite_url, envelope_id, c_1="done")
    assert roles["c_1"].code == "timed_out"
    assert shown(sqlite_url, envelope_id).failures[0].verb == verb


async def test_an_error_of_one_consumer_costs_another_that_gets_another_event_nothing(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"one": {"c": []}, "two": {"d": []}})
    daemon = start_daemon(sqlite_url, ONCE)
    async with (
        OldConsumer(daemon.back, "c_1") as broken,
        OldConsumer(daemon.back, "d_1") as other,
        OldEmitter(daemon.front) as emitter,
    ):
        broken.behave["send_item"] = breaks
        envelope_id = await emitter.call.start_envelope(emitter.token)
        events = [await emitter.start_event(envelope_id, name) for name in ("one", "two")]
        for event_id in events:
            await emitter.send(envelope_id, event_id, b"x")
        await emitter.end(envelope_id, *events)
        await become(sqlite_url, envelope_id, c_1="parked", d_1="done")

    assert other.items() == [b"x"]


async def test_a_worker_that_fails_parks_the_envelope_and_works_on(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}})
    daemon = start_daemon(sqlite_url, ONCE)
    async with (
        OldWorker(daemon.back, "w_1") as worker,
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        for answer in (breaks, lambda *_: (False, [([0], "no")])):
            worker.behave["send_item"] = answer
            envelope_id = await emitter.emit(b"x")
            await become(sqlite_url, envelope_id, c_1="parked")
            await eventually(lambda: [envelope_id] in worker.got("stop_envelope"), "it is stopped")  # noqa: B023
        worker.behave.clear()
        await consumer.wait_for([await emitter.emit(b"y")])

    assert consumer.items() == [b"y w_1"]


# -- registration ------------------------------------------------------------------------------------------------------

WRONG_INTRODUCTIONS: dict[str, tuple[str, Any]] = {
    "metadata that fails": ("get_metadata", breaks),
    "metadata that never comes": ("get_metadata", never),
    "metadata that is no map": ("get_metadata", lambda: "me"),
    "metadata without a name": ("get_metadata", lambda: {key: METADATA[key] for key in METADATA if key != "name"}),
    "metadata with a text as version": ("get_metadata", lambda: METADATA | {"version": "1.0"}),
    "clearing that fails": ("has_clearing", breaks),
    "clearing of another shape": ("has_clearing", lambda: True),
    "a reply of another shape": ("has_immediate_reply", lambda: None),
    "metadata of too many values": ("get_metadata", lambda: [{}] * TOO_MANY),
    "clearing of too many values": ("has_clearing", lambda: [{}] * TOO_MANY),
    "a reply of too many values": ("has_immediate_reply", lambda: [{}] * TOO_MANY),
}

TOO_MANY = 200_000
"""Values that an answer may not have: each costs the broker sixty times as much memory as it costs the recipient."""


async def test_a_recipient_that_does_not_introduce_itself_is_refused(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url, impatient("register"))
    consumer = OldConsumer(daemon.back, "c_1")
    await consumer.serve()
    async with OldEmitter(daemon.front) as emitter:
        envelope_id = await emitter.emit(b"x")
        for name, (verb, answer) in WRONG_INTRODUCTIONS.items():
            before = daemon.log.count("register_node refused")
            consumer.behave = {verb: answer}
            assert await consumer.register() is False, name
            await eventually(lambda: daemon.log.count("register_node refused") == before + 1, "it is told why")  # noqa: B023
            assert await consumer.call.ready(consumer.token) is False
        assert len(re.findall("register_node refused.* has more than 100,000 values", daemon.log)) == 3
        consumer.behave.clear()
        assert await consumer.register() is True
        await consumer.wait_for([envelope_id])
    await consumer.leave()


@pytest.mark.parametrize(
    "uri",
    [
        *(
            "tcp://127.0.0.1:1",
            "",
            "nonsense",
            "tcp://",
            "tcp://no.such.host.invalid:1",
            "http://127.0.0.1:80",
            "pgm://1",
        ),
        *("inproc://#f2b", "ipc:///run/xbus", "tcp://203.0.113.7:80"),
    ],
)
async def test_an_address_that_can_not_be_used_is_refused(uri: str, shared: Any) -> None:
    async with OldConsumer(shared.back, "c_1") as consumer:
        before = shared.log.count("register_node refused")
        assert await consumer.call.register_node(consumer.token, uri) is False
        await eventually(lambda: shared.log.count("register_node refused") == before + 1, "it is told why")
