"""Deliveries of a span of time, from counts that rise."""

from xbus.broker.journal.samples.sample import Delivered
from xbus.monitor.live.sampler import DeliveryCounts


def test_growth_since_the_last_look_is_delivered() -> None:
    counts = DeliveryCounts()
    assert counts.since_last({1: Delivered(5, 50), 2: Delivered(1, 1)}, 0.0, 10.0) == {}
    grown = {1: Delivered(9, 80), 2: Delivered(1, 1), 3: Delivered(4, 4)}
    assert counts.since_last(grown, 10.0, 10.0) == {1: Delivered(4, 30), 3: Delivered(4, 4)}
    # Beside another monitor a sample has half of the time.
    assert counts.since_last({1: Delivered(19, 100)}, 20.0, 5.0) == {1: Delivered(5, 10)}


def test_a_back_that_began_anew_counts_from_nothing() -> None:
    counts = DeliveryCounts()
    counts.since_last({1: Delivered(5, 50)}, 0.0, 10.0)
    assert counts.since_last({1: Delivered(2, 7)}, 10.0, 10.0) == {1: Delivered(2, 7)}


def test_a_back_that_was_away_is_no_rate() -> None:
    counts = DeliveryCounts()
    counts.since_last({1: Delivered(5, 50)}, 0.0, 10.0)
    assert counts.since_last(None, 10.0, 10.0) == {}
    assert counts.since_last({1: Delivered(99, 99)}, 20.0, 10.0) == {}
