"""Envelopes that come again, and who consumes: as aiozmq asks for it, and as our emitter does."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import METADATA, OldConsumer, OldEmitter, OldWorker
from tests.support.processes import run, script
from tests.support.showing import become, shown
from tests.support.waiting import DEADLINE_SECONDS, eventually
from xbus.emitter import AsyncEmitter
from xbus.errors import Refused
from xbus.states import TrackingState

UNKNOWN = str(uuid.UUID(int=4711))
TOO_OLD = (False, [([0], "too old")])


@pytest.fixture
async def emitter(shared: Daemon) -> AsyncIterator[OldEmitter]:
    async with OldEmitter(shared.front) as emitter:
        yield emitter


@pytest.fixture
async def sender(shared: Daemon) -> AsyncIterator[AsyncEmitter]:
    async with AsyncEmitter(shared.front, "emitter_1", PASSWORD) as sender:
        yield sender


async def refused(daemon: Daemon, code: str, verb: Any, *args: Any) -> None:
    """The old answer for a refusal, and its reason in the log."""
    before = daemon.log.count(f"code={code}")
    assert await verb(*args) == ""
    await eventually(lambda: daemon.log.count(f"code={code}") == before + 1, f"{code} is logged")


async def code_of(call: Any) -> str:
    with pytest.raises(Refused) as caught:
        await call
    return caught.value.code


def tracked(url: str, envelope_id: str) -> set[TrackingState]:
    return {failure.tracking for failure in shown(url, envelope_id).failures}


async def test_a_retry_is_for_those_who_lack_it_and_a_replay_for_all(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"test_event": {"w": ["c"], "c": []}}, {"c": 2})
    daemon = start_daemon(database_url)
    async with (
        OldWorker(daemon.back, "w_1"),
        OldConsumer(daemon.back, "c_1") as first,
        OldConsumer(daemon.back, "c_2") as second,
        OldEmitter(daemon.front) as emitter,
    ):
        first.behave["end_envelope"] = lambda *_: TOO_OLD
        envelope_id, note = await emitter.start()
        other = await emitter.start_event(envelope_id)
        await emitter.send(envelope_id, note, b"a", b"b")
        await emitter.send(envelope_id, other, b"c")
        await emitter.end(envelope_id, note, other)
        await become(database_url, envelope_id, c_1="parked", c_2="done")
        assert tracked(database_url, envelope_id) == {TrackingState.UNPROCESSED}

        first.behave.clear()
        asked = [emitter.call.retry_event(emitter.token, event_id) for event_id in (note, other) * 3]
        again, also, *more = await asyncio.gather(*asked)
        assert more == [again, also] * 2
        assert len({note, other, again, also, ""}) == 5
        retried = await envelope_of(first, again)
        await first.wait_for([retried])
        assert [args[1] for args in first.got("start_event") if args[0] == retried] == [again, also]
        assert first.items(retried) == first.items(envelope_id) == [b"a w_1", b"b w_1", b"c w_1"]
        assert shown(database_url, retried).hash == shown(database_url, envelope_id).hash
        await become(database_url, envelope_id, c_1="retried", c_2="done")
        await become(database_url, retried, c_1="done")
        await eventually(
            lambda: tracked(database_url, envelope_id) == {TrackingState.CORRECTED}, "its failures are closed"
        )

        # What was retried stays so, whatever becomes of the broker.
        daemon.kill()
        await asyncio.to_thread(daemon.start)
        assert await emitter.call.retry_event(emitter.token, other) == also
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(await emitter.call.get_consumers(emitter.token)) < 2:
                pass
        replayed = await emitter.call.replay_envelope(emitter.token, envelope_id)
        await first.wait_for([replayed])
        await second.wait_for([replayed])
        assert second.items(replayed) == [b"a w_1", b"b w_1", b"c w_1"]
        assert second.verbs(retried) == []

    summary = shown(database_url, retried).summary
    assert (str(summary.origin), summary.only_roles) == (envelope_id, ("c_1",))
    lines = [
        line.split()
        for line in run(script("xbus"), "envelope", "show", "-c", daemon.config, retried).stdout.splitlines()
    ]
    assert ["repeats", envelope_id] in lines
    assert ["only", "for", "c_1"] in lines


async def envelope_of(consumer: OldConsumer, event_id: str) -> str:
    """The envelope in which a consumer gets an event."""

    def found() -> list[str]:
        return [args[0] for args in consumer.got("start_event") if args[1] == event_id]

    await eventually(found, "the event comes")
    return found()[0]


async def test_what_does_not_come_again(shared: Daemon, emitter: OldEmitter, sender: AsyncEmitter) -> None:
    retry, replay = emitter.call.retry_event, emitter.call.replay_envelope
    async with OldConsumer(shared.back, "c_1") as consumer:
        done, event_id = await emitter.start()
        await emitter.end(done, event_id)
        await consumer.wait_for([done])
    await refused(shared, "nothing_to_retry", retry, emitter.token, event_id)
    assert await code_of(sender.retry(event_id)) == "nothing_to_retry"

    opened, open_event = await emitter.start()
    await emitter.send(opened, open_event, b"x")
    await refused(shared, "nothing_to_retry", retry, emitter.token, open_event)
    await refused(shared, "envelope_open", replay, emitter.token, opened)
    assert await emitter.call.cancel_envelope(emitter.token, opened) is True
    assert await code_of(sender.replay(opened)) == "envelope_open"

    for text in (UNKNOWN, "nonsense", ""):
        await refused(shared, "event_unknown", retry, emitter.token, text)
        await refused(shared, "envelope_unknown", replay, emitter.token, text)
    await refused(shared, "session_unknown", retry, UNKNOWN, event_id)
    await refused(shared, "session_unknown", replay, UNKNOWN, done)
    async with OldEmitter(shared.front, "emitter_2") as other:
        await refused(shared, "event_unknown", retry, other.token, event_id)
        await refused(shared, "envelope_unknown", replay, other.token, done)
    assert await code_of(sender.retry(UNKNOWN)) == "event_unknown"
    assert await code_of(sender.replay(UNKNOWN)) == "envelope_unknown"


async def test_our_emitter_has_envelopes_come_again(shared: Daemon, sender: AsyncEmitter) -> None:
    async with OldConsumer(shared.back, "c_1") as consumer:
        consumer.behave["send_item"] = lambda *_: TOO_OLD
        async with sender.envelope() as envelope, envelope.event("test_event") as event:
            await event.send(b"x")
        await become(shared.url, envelope.id, c_1="parked")
        consumer.behave.clear()
        # An envelope of an earlier test may have come at the login.
        before = len(consumer.items())
        again = await sender.retry(event.id)
        assert await sender.retry(event.id) == again
        await eventually(lambda: again in [args[1] for args in consumer.got("start_event")], "it comes again")
        replayed = await sender.replay(envelope.receipt.envelope_id)
        await consumer.wait_for([replayed])
        assert consumer.items()[before:] == [b"x", b"x"]


async def test_who_consumes(shared: Daemon, emitter: OldEmitter, sender: AsyncEmitter) -> None:
    """Arrays of the wire are tuples to aiozmq."""

    async def names() -> list[str]:
        return [metadata["name"] for metadata, _ in await emitter.call.get_consumers(emitter.token)]

    consumer = OldConsumer(shared.back, "c_1")
    consumer.behave["get_metadata"] = lambda: {**METADATA, "locale": "fr-CH"}
    consumer.behave["has_clearing"] = lambda: (True, "postgresql://clerk:5ecret@here/clearing")
    consumer.behave["has_immediate_reply"] = lambda: (True, ["test_event"])
    async with consumer:
        found = await emitter.call.get_consumers(emitter.token)
        features = {"clearing": (True, "postgresql://clerk@here/clearing"), "immediate_reply": (True, ("test_event",))}
        assert found == (({**METADATA, "locale": "fr-CH"}, features),)
        ((metadata, said),) = await sender.consumers()
        assert (metadata["locale"], said["clearing"]) == ("fr-CH", [True, "postgresql://clerk@here/clearing"])
        assert await emitter.call.get_consumers(UNKNOWN) == ()
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await names():
            pass
    async with OldConsumer(shared.back, "c_1"):
        assert await names() == [METADATA["name"]]
