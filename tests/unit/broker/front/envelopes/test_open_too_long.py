"""Health tells of envelopes that stay open, by a clock that stands still, and no longer once they are ended."""

import math

from tests.support.clock import StandingClock
from tests.support.journal import Scribe
from xbus.broker.front.envelopes.ended_by_others import OpenTooLong
from xbus.broker.journal.journal import Journal
from xbus.supervision.health import Health


async def test_an_envelope_that_stays_open(journal: Journal) -> None:
    scribe = await Scribe.of(journal)
    clock = StandingClock()
    health = Health("front", clock)
    watch = OpenTooLong(journal, health, clock, 60)
    never = OpenTooLong(journal, health, clock, math.inf)
    envelope_id, started = scribe.start_envelope()
    await started
    began = clock.now()
    for passed, is_healthy in ((0, True), (59 * 60, True), (60, False), (1e6, False)):
        clock.go_on(passed)
        await never.look()
        await watch.look()
        assert health.healthy is is_healthy
    (problem,) = health.problems
    assert (problem.code, problem.about, problem.since) == ("open_too_long", "north", began)
    assert problem.cause == (
        "1 envelope of the emitter north is open for 60 minutes or longer, the oldest since 2020-02-29 12:00:00Z"
    )
    assert "xbus envelope list --state open" in problem.next_step
    await scribe.seal(envelope_id, 0, 0)
    await watch.look()
    assert health.healthy
