"""Open envelopes that their emitters have left."""

import uuid

import pytest

from tests.support.clock import StandingClock
from tests.support.journal import Scribe
from xbus.broker.front.envelopes.timeouts import OpenTimeouts
from xbus.broker.front.front import Front
from xbus.broker.journal.journal import Journal
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
