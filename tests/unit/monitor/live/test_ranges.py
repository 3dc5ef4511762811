"""Samples in the parts of a range: none is lost, gaps stay, and a long sample fills several parts."""

from datetime import UTC, datetime, timedelta

import pytest

from xbus.broker.journal.samples.sample import Sample
from xbus.monitor.live.plots import RANGES, PlotRange, RangeName, draw_plots, parts_of

NOW = datetime(2026, 2, 28, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)

RANGE = PlotRange("a minute", timedelta(minutes=1), 10, 15)


def sample(began: float, ended: float, items: int = 1, observed: float | None = None) -> Sample:
    """A sample, its times in seconds before now."""
    seconds = began - ended if observed is None else observed
    return Sample(10, NOW - began * SECOND, NOW - ended * SECOND, seconds, 1, items=items, lag=items)


def items_of(*samples: Sample) -> list[int | None]:
    return [None if part.sample is None else part.sample.items for part in parts_of(samples, RANGE, NOW)]


def test_a_range_without_samples_is_a_gap() -> None:
    assert items_of() == [None] * 5


def test_samples_of_a_part_come_together() -> None:
    assert items_of(sample(59, 52, 1), sample(52, 46, 2), sample(10, 4, 5)) == [3, None, None, 5, None]


def test_a_long_sample_fills_all_parts_that_it_covers() -> None:
    assert items_of(sample(60, 15, 7)) == [7, 7, 7, None, None]


def test_samples_that_are_a_little_late_leave_no_gap() -> None:
    drifting = [sample(60 - 10.4 * number, 60 - 10.4 * (number + 1)) for number in range(6)]
    assert None not in items_of(*drifting)[:4]


def test_the_begin_of_counting_is_no_value() -> None:
    assert items_of(sample(30, 20, 0, observed=0)) == [None] * 5


def test_what_came_before_the_range_is_left_out() -> None:
    assert items_of(sample(100, 90)) == [None] * 5


@pytest.mark.parametrize("name", RANGES)
def test_each_range_has_a_hundred_values_at_the_most(name: RangeName) -> None:
    parts = [*parts_of([], RANGES[name], NOW + 7 * SECOND)]
    assert 50 <= len(parts) <= 125
    assert parts[0].began_at <= NOW - RANGES[name].length + RANGES[name].part * SECOND
    assert parts[-1].began_at <= NOW + 7 * SECOND <= parts[-1].ended_at


@pytest.mark.parametrize("name", RANGES)
def test_the_plots_of_a_range(name: RangeName) -> None:
    range_ = RANGES[name]
    step = range_.step * SECOND
    ended = [NOW - number * step for number in range(200)]
    samples = [Sample(range_.step, at - step, at, range_.step, 1, items=range_.step * 3, lag=4) for at in ended[::-1]]
    received, late, lacking = draw_plots(samples, range_, NOW)
    assert {spot.text for spot in received.spots} == {"3"}
    assert {spot.text for spot in late.spots} == {"0 s"}
    assert {spot.text for spot in lacking.spots} == {"4"}
