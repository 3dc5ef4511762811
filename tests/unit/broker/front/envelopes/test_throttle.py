"""Emitters are held to their limits, and told how long to wait."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.clock import StandingClock
from xbus.broker.configuration import Configuration
from xbus.broker.front.envelopes import Throttle
from xbus.broker.front.envelopes.checks import LEAST_SECONDS, TokenBucket
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.log.emitters import EmitterEntry
from xbus.broker.journal.writes import SendingLimits
from xbus.errors import Failed

LIMITED, FREE, UNKNOWN = 1, 2, 3


class Throttled:
    """A throttle, a clock, and limits that may change."""

    def __init__(self, **limits: int) -> None:
        self.clock = StandingClock()
        self._listeners: list[Callable[[], None]] = []
        self._configuration = SimpleNamespace(on_change=self._listeners.append)
        self.limit(**limits)
        self.throttle = Throttle(cast(Configuration, self._configuration), self.clock.monotonic)

    def limit(self, **limits: int) -> None:
        emitters = {
            LIMITED: EmitterEntry(LIMITED, "limited", frozenset(), limits=SendingLimits(**limits)),
            FREE: EmitterEntry(FREE, "free", frozenset()),
        }
        self._configuration.catalog = Catalog(1, {}, emitters, {})
        for listener in self._listeners:
            listener()


def wait(call: Callable[[], None]) -> float:
    """The seconds that a refused call is told to wait; 0 for one that passes."""
    try:
        call()
    except Failed as error:
        assert error.code == "slow_down"
        assert f"{error.details['seconds']:g} s" in error.next_step
        return error.details["seconds"]
    return 0.0


def test_a_bucket_lets_pass_what_comes_at_its_rate() -> None:
    bucket = TokenBucket(100, 0.0)
    assert bucket.wait(100, 0.0) == 0
    bucket.take(100)
    assert bucket.wait(50, 0.0) == pytest.approx(0.5)
    assert bucket.wait(50, 0.25) == pytest.approx(0.25)
    assert bucket.wait(50, 0.5) == 0


def test_what_exceeds_the_bucket_passes_when_it_is_full_and_is_paid_afterwards() -> None:
    bucket = TokenBucket(10, 0.0)
    assert bucket.wait(100, 0.0) == 0
    bucket.take(100)
    assert bucket.wait(1, 0.0) == pytest.approx(9.1)
    assert bucket.wait(100, 9.5) == pytest.approx(0.5)
    assert bucket.wait(100, 10.0) == 0


def test_a_bucket_that_stands_full_does_not_run_over() -> None:
    bucket = TokenBucket(10, 0.0)
    bucket.wait(1, 1000.0)
    bucket.take(10)
    assert bucket.wait(1, 1000.0) == pytest.approx(0.1)


def test_items_and_bytes_a_second() -> None:
    made = Throttled(items_per_second=10, bytes_per_second=1000)
    charge = made.throttle.charge
    assert wait(lambda: charge(LIMITED, 10, 100)) == 0
    assert wait(lambda: charge(LIMITED, 5, 1)) == pytest.approx(0.5)
    made.clock.go_on(1)
    assert wait(lambda: charge(LIMITED, 1, 1000)) == 0
    assert wait(lambda: charge(LIMITED, 1, 500)) == pytest.approx(0.5)
    assert wait(lambda: charge(LIMITED, 1, 0)) == 0


def test_a_refused_call_takes_nothing() -> None:
    made = Throttled(items_per_second=10, bytes_per_second=1000)
    made.throttle.charge(LIMITED, 0, 1000)
    for _ in range(100):
        assert wait(lambda: made.throttle.charge(LIMITED, 10, 10)) == LEAST_SECONDS
    made.clock.go_on(LEAST_SECONDS)
    assert wait(lambda: made.throttle.charge(LIMITED, 10, 10)) == 0


def test_a_change_is_in_force_at_once() -> None:
    made = Throttled()
    charge = made.throttle.charge
    assert wait(lambda: charge(LIMITED, 1000, 0)) == 0
    made.limit(items_per_second=10)
    assert [wait(lambda: charge(LIMITED, 10, 0)) for _ in range(2)] == [0, 1]
    made.limit(items_per_second=1000)
    assert wait(lambda: charge(LIMITED, 10, 0)) == LEAST_SECONDS
    made.limit(bytes_per_second=1)
    assert wait(lambda: charge(LIMITED, 1000, 1)) == 0


@pytest.mark.parametrize("emitter_id", [FREE, UNKNOWN])
def test_others_have_no_limits(emitter_id: int) -> None:
    made = Throttled(items_per_second=1, bytes_per_second=1, open_envelopes=1, calls_in_flight=1)
    for _ in range(3):
        made.throttle.charge(emitter_id, 10**6, 10**9)
        made.throttle.check_open(emitter_id, lambda _: 10**6)
    assert not made.throttle.counts_calls(emitter_id)


def test_open_envelopes() -> None:
    made = Throttled(open_envelopes=2)
    assert wait(lambda: made.throttle.check_open(LIMITED, lambda _: 1)) == 0
    assert wait(lambda: made.throttle.check_open(LIMITED, lambda _: 2)) == 1


def test_calls_in_flight_and_their_bytes() -> None:
    made = Throttled(calls_in_flight=2, bytes_in_flight=100)
    throttle = made.throttle
    assert throttle.bounds_calls
    assert throttle.counts_calls(LIMITED)
    assert wait(lambda: throttle.begin_call(LIMITED, 1000)) == 0
    assert wait(lambda: throttle.begin_call(LIMITED, 1)) == LEAST_SECONDS
    throttle.end_call(LIMITED, 1000)
    assert [wait(lambda: throttle.begin_call(LIMITED, 10)) for _ in range(3)] == [0, 0, LEAST_SECONDS]
    throttle.end_call(LIMITED, 10)
    assert wait(lambda: throttle.begin_call(LIMITED, 10)) == 0
    made.limit(items_per_second=1)
    assert not throttle.bounds_calls
