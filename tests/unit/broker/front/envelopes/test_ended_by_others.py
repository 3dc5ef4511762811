"""Open envelopes that end without their emitters."""

import asyncio
import uuid

import pytest

from tests.support.clock import StandingClock
from tests.support.journal import NOW, Scribe
from tests.unit.broker.front.conftest import Desk, Rings
from xbus.broker.front.envelopes.ended_by_others import OpenTimeouts, OperatorCancels
from xbus.broker.front.front import Front
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.operations.envelopes.details import cancel_open
from xbus.envelope import EnvelopeHead
from xbus.errors import Refused
from xbus.rpc.deferred import awaited


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def timeouts(journal: Journal, front: Front, clock: StandingClock) -> OpenTimeouts:
    return OpenTimeouts(journal, front, clock, 100)


async def test_an_envelope_without_calls_is_cancelled_and_its_emitter_told_why(
    timeouts: OpenTimeouts, front: Front, journal: Journal, clock: StandingClock
) -> None:
    scribe = await Scribe.of(journal)
    left, started = scribe.start_envelope()
    busy, also = scribe.start_envelope()
    await started
    await also
    for _ in range(3):
        await timeouts.look()
        clock.go_on(40)
        await awaited(front.start_event(scribe.emitter_id(), busy, uuid.uuid4(), "notes", 0))
    await timeouts.look()
    with pytest.raises(Refused, match=r"cancelled: its emitter made no call for it for 100 s") as refusal:
        await awaited(front.start_event(scribe.emitter_id(), left, uuid.uuid4(), "notes", 0))
    assert refusal.value.code == "envelope_closed"
    assert await awaited(front.cancel_envelope(scribe.emitter_id(), busy)) is True
    clock.go_on(100)
    await timeouts.look()


async def cancel(journal: Journal, envelope_id: uuid.UUID) -> None:
    """What the command of an operator does."""
    await journal.run(cancel_open, envelope_id, NOW, "ada: must not be delivered")


def reason(refusal: pytest.ExceptionInfo[Refused]) -> tuple[str, bool]:
    return refusal.value.code, "cancelled: by ada: must not be delivered" in refusal.value.cause


OF_ADA = ("envelope_closed", True)


async def test_an_emitter_is_told_why_an_operator_cancelled_its_envelope(
    front: Front, north: Desk, journal: Journal, rings: Rings
) -> None:
    envelope_id = await north.start_envelope()
    other = await north.start_envelope()
    event_id = await north.start_event(envelope_id)
    await north.append(envelope_id, event_id, 0, [b"a"])
    await cancel(journal, envelope_id)
    await OperatorCancels(front).look()
    assert (front.open_envelopes, rings.count) == (1, 1)
    for call in (
        north.append_soon(envelope_id, event_id, 1, [b"b"]),
        front.start_event(north.emitter_id, envelope_id, uuid.uuid4(), "notes", 0),
        front.end_event(north.emitter_id, envelope_id, event_id, 1),
        front.end_envelope(north.emitter_id, envelope_id, 1),
    ):
        with pytest.raises(Refused) as refusal:
            await awaited(call)
        assert reason(refusal) == OF_ADA
    assert await north.cancel(envelope_id)
    assert (await north.seal(other, 0)).position == 1


async def test_a_seal_that_comes_before_the_front_looked_is_told_the_same(north: Desk, journal: Journal) -> None:
    envelope_id = await north.start_envelope()
    event_id = await north.start_event(envelope_id)
    await north.append(envelope_id, event_id, 0, [b"a"])
    await north.end_event(envelope_id, event_id, 1)
    await cancel(journal, envelope_id)
    for _ in range(2):
        with pytest.raises(Refused) as refusal:
            await north.seal(envelope_id, 1)
        assert reason(refusal) == OF_ADA
    assert await north.cancel(envelope_id)


async def test_an_emitter_may_cancel_what_was_cancelled(north: Desk, journal: Journal) -> None:
    envelope_id = await north.start_envelope()
    await north.start_event(envelope_id)
    await north.append(envelope_id, await north.start_event(envelope_id), 0, [b"a"])
    await cancel(journal, envelope_id)
    assert await north.cancel(envelope_id)


async def test_a_key_stands_for_the_next_envelope(front: Front, north: Desk, journal: Journal) -> None:
    options = EnvelopeHead(key="order 1")
    first = await front.start_keyed(north.emitter_id, b"session", options)
    await awaited(front.start_event(north.emitter_id, first, uuid.uuid5(first, "1"), "notes", 0))
    await north.append(first, uuid.uuid5(first, "1"), 0, [b"a"])
    await cancel(journal, first)
    await OperatorCancels(front).look()
    assert await front.start_keyed(north.emitter_id, b"session", options) != first


async def test_the_front_looks_after_each_change(front: Front, north: Desk, journal: Journal) -> None:
    cancels = OperatorCancels(front)
    watching = asyncio.ensure_future(cancels.watch())
    envelope_id = await north.start_envelope()
    event_id = await north.start_event(envelope_id)
    await north.append(envelope_id, event_id, 0, [b"a"])
    await cancel(journal, envelope_id)
    cancels.configuration_changed()
    while front.open_envelopes:
        await asyncio.sleep(0)
    watching.cancel()
